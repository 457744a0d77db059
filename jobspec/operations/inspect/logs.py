"""Which lines of a job's logs are meant, and what reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.log_lines import Line, LineSelection, Reader


@dataclass(frozen=True, slots=True)
class Choice:
    """Which lines are meant; `current` begins with the current generation, `tail` are the last lines of each process."""

    node: int | None = None
    rank: int | None = None
    generation: int | None = None
    tail: int | None = None
    since: float | None = None
    launcher: bool = False
    current: bool = False


def open_logs(handle: Handle, choice: Choice) -> Reader:
    """Return what reads the chosen lines: where the job runs, otherwise in what `down` collected.

    Raises Refused where a node or a generation is asked for that never was: a slip is no empty log.
    """
    logs = _reader(handle, _selection(handle, choice), choice.tail)
    _refuse_unknown(handle, logs, choice)
    return logs


def _reader(handle: Handle, selection: LineSelection, last: int | None) -> Reader:
    """Return what reads the logs: where the job runs, otherwise in what `down` collected."""
    from jobctl.jobspec.deploy.logs.files import Folder
    from jobctl.jobspec.deploy.logs.reader import Logs
    from jobctl.jobspec.deploy.store.archive import last_folders

    reader = handle.logs(selection, last)
    if reader is not None:
        return reader
    collected = last_folders(handle.job)
    if not collected:
        raise Refused(f"job `{handle.job.name}` has no logs here", "`jobctl up` starts it")
    return Logs(Folder(*collected), selection, last)


def _selection(handle: Handle, choice: Choice) -> LineSelection:
    from jobctl.jobspec.deploy.model.log_lines import LineSelection

    since, current = choice.since, None
    if choice.current:
        control = handle.observe().control
        since = control.ledger.began or None
        current = control.generation.number if control.generation is not None else None
    return LineSelection(choice.node, choice.rank, choice.generation, since, current, choice.launcher)


def _refuse_unknown(handle: Handle, logs: Reader, choice: Choice) -> None:
    """Raise Refused where a node or a generation is asked for that never was; a host that does not answer may have it."""
    name = handle.job.name
    for what, asked, known in (
        ("node", choice.node, logs.nodes if choice.node is not None else None),
        ("generation", choice.generation, logs.generations if choice.generation is not None else None),
    ):
        there = known() if known else set()
        if asked is not None and asked not in there and not {**handle.failures, **logs.problems}:
            names = ", ".join(map(str, sorted(there)))
            hint = f"there is {what} {names}" if there else f"no {what} of it is known"
            raise Refused(f"job `{name}` has no {what} {asked}", hint)


def refuse_unknown_rank(handle: Handle, choice: Choice) -> None:
    """Raise Refused if the caller asks for a rank that the job does not have, or has on other nodes only."""
    if choice.rank is None:
        return
    count = _rank_count(handle)
    if choice.rank >= count > 0:
        hint = "its only rank is 0" if count == 1 else f"its ranks are 0 to {count - 1}"
        raise Refused(f"job `{handle.job.name}` has no rank {choice.rank}", hint)
    nodes = set() if choice.node is None else _nodes_with(handle, choice)
    if nodes and choice.node not in nodes:
        names = ", ".join(map(str, sorted(nodes)))
        raise Refused(
            f"rank {choice.rank} of job `{handle.job.name}` is not on node {choice.node}",
            f"it is on node {names}: leave out `--node`, or name that one",
        )


def _nodes_with(handle: Handle, choice: Choice) -> set[int]:
    """Return the nodes on which the chosen rank has printed something."""
    from jobctl.jobspec.deploy.model.log_lines import LineSelection

    chosen = LineSelection(rank=choice.rank, generation=choice.generation)
    return _seen(handle, chosen, 1, lambda line: line.node)


def _rank_count(handle: Handle) -> int:
    """Return how many ranks a job has, as its plan or, once it is down, its logs say; 0 if neither does."""
    from jobctl.jobspec.deploy.model.log_lines import LineSelection

    if handle.plan is not None:
        return sum(node.launch.nproc for node in handle.plan.nodes if node.role == "trainer")
    return max(_seen(handle, LineSelection(), None, lambda line: line.rank), default=-1) + 1


def _seen(handle: Handle, selection: LineSelection, last: int | None, what: Callable[[Line], int | None]) -> set[int]:
    """Return what lines have; nothing where a host does not answer, which may have others."""
    logs = _reader(handle, selection, last)
    found = {what(line) for line in logs.lines(final=True)}
    return set() if {**handle.failures, **logs.problems} else {one for one in found if one is not None}
