"""What a partition can give a job, beside what `sbatch --test-only` says: that accepts what then waits for ever. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.slurm import machines, options_of
from jobctl.jobspec.spec.durations import in_all_units, parse_slurm

_GONE = ("down", "drain", "fail", "unk", "power", "inval")  # how the states of nodes begin that take no job
_NAMED = 4  # nodes that are named; of more, how many there are


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: `most` nodes and `seconds` for one job, None where it has no limit."""

    name: str
    state: str
    total: int
    most: int | None
    seconds: float | None


def chosen_partition(shown: str, wanted: str | None) -> Partition | None:
    """Return the partition of a job from what `scontrol --oneliner show partition` says; None if that does not tell.

    `wanted` may name several, of which Slurm takes one: then nothing is certain.
    """
    for line in shown.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        name = fields.get("PartitionName")
        if name is not None and (name == wanted if wanted else fields.get("Default") == "YES"):
            return Partition(
                name,
                fields.get("State", "UP"),
                _number(fields.get("TotalNodes")) or 0,
                _number(fields.get("MaxNodes")),
                parse_slurm(fields.get("MaxTime", "")),
            )
    return None


def partition_findings(
    where: str, plan: Plan, partition: Partition, nodes: str, qos: str | None = None
) -> Iterator[Finding]:
    """Yield what keeps a job of this plan waiting: for ever (an error), or until somebody does something (a warning).

    `nodes` is what `sinfo -N -o '%N|%T|%E'` says of the partition. A `qos` may allow more than the partition does, so what
    is above a limit may only have to wait.
    """
    given, name = options_of(plan), partition.name
    wanted = machines(plan)[0] + given.spares
    asked = f"the job asks for {wanted} (`nodes` and `slurm.spares`)"
    above, unless = ("warning", f"; it waits unless QOS `{qos}` allows more") if qos else ("error", "")

    def found(verdict: str, message: str, code: str, hint: str) -> Finding:
        return Finding(where, "slurm-partition", "error" if verdict == "error" else "warning", message, code, hint)

    if partition.state != "UP":
        state = partition.state.lower()
        yield found("warning", f"partition `{name}` is {state}: the job waits", "slurm-partition", _ANOTHER)
    if partition.total and wanted > partition.total:
        message = f"partition `{name}` has {counted(partition.total, 'node')}, and {asked}"
        yield found("error", message, "slurm-nodes", "ask for fewer, or choose another `slurm.partition`")
    elif partition.most is not None and wanted > partition.most:
        message = f"partition `{name}` gives a job {counted(partition.most, 'node')} at most, and {asked}"
        yield found(above, message + unless, "slurm-nodes", "ask for fewer, or choose another `slurm.partition`")
    elif partition.total - len(gone := _gone(nodes)) < wanted and gone:
        few = f"{len(gone)} take{'s' if len(gone) == 1 else ''} no job now"
        message = f"of the {counted(partition.total, 'node')} of partition `{name}`, {few}: {_names(gone)}; {asked}, and waits"
        yield found(
            "warning", message, "slurm-nodes", "`sinfo -R` says why nodes are down or drained; or ask for fewer"
        )
    if given.time is not None and partition.seconds is not None and given.time > partition.seconds:
        message = f"partition `{name}` gives a job {in_all_units(partition.seconds)} at most, and `slurm.time` is {in_all_units(given.time)}"
        yield found(above, message + unless, "slurm-time", "lower `slurm.time`, or choose another `slurm.partition`")


_ANOTHER = "choose another `slurm.partition`: `sinfo` lists them; or wait until it is up"


def _gone(nodes: str) -> list[str]:
    """Return the nodes that take no job, each with its reason in brackets."""
    found: dict[str, str] = {}
    for line in nodes.splitlines():
        name, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        if state.lower().startswith(_GONE):
            found[name] = f"{name} ({reason if reason not in ('', 'none', 'Unknown') else state})"
    return list(found.values())


def _names(gone: Sequence[str]) -> str:
    return ", ".join(gone[:_NAMED]) + (f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else "")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
