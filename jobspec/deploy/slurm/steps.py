"""A job's plan against what was sent and what Slurm has of it: the steps that lead from one to the other, with their causes.

Pure. A change of a file that Slurm, or the coordinator, reads when the allocation begins needs another allocation. Every
other file is sent, and a generation begins with it in the same allocation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobctl.jobspec.deploy.apply.changes import Changed
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.observed import SETTLED, Observed, Phase, phase
from jobctl.jobspec.deploy.slurm.sent_files import hashes_of, settings_of_earlier
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass

# Among what was sent: an `up` has begun to send files, and no generation has begun with them yet. Once all have arrived, it
# is what `sent` says as soon as one has.
DUE = "due"
_READ_ONCE = ("job.sbatch", "slurm.json")  # what Slurm, or the coordinator, has read when the allocation began
_CUT_OFF = "an `up` was cut off before a generation began with what it sent"


@dataclass(frozen=True, slots=True)
class Submitted:
    """The state of a job in Slurm, and what was `sent` for it: the hash of each file, by its path, and DUE."""

    phase: Phase
    follows: str  # the number of the generation that follows
    sent: Mapping[str, Any]
    begins_runs: bool = True  # whether its coordinator can begin a run with a checkpoint directory of its own


def next_generation(observed: Observed) -> str:
    """Return the number of the generation that follows."""
    generation = observed.control.generation
    return str(generation.number + 1 if generation else 1)


def submitted_of(observed: Observed, sent: Mapping[str, Any], *, begins_runs: bool) -> Submitted:
    """Return the state of a job, as it was observed."""
    return Submitted(phase(observed)[0], next_generation(observed), sent, begins_runs)


def due_of(sent: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the hashes of the files that have arrived, and that no generation has begun with yet; None if there are none."""
    due = sent.get(DUE)
    return due if isinstance(due, dict) else None


def steps(plan: Plan, now: Submitted, changed: Sequence[Changed], *, fresh: bool, recreate: bool) -> tuple[Step, ...]:
    """Return what `up` has to do, nothing if all is as planned; `changed` are the keys of the spec that differ."""
    other = _other_files(plan, now.sent, changed)
    # Values of secrets are in a file whose hash nobody may know.
    due = bool(now.sent.get(DUE)) or any(one.generation for one in changed)
    words = "; ".join(map(str, changed)) or (f"{', '.join(other)} differs" if other else _CUT_OFF)
    asked, same = "`--fresh`: a new run" if fresh else None, not (other or due or fresh)
    if now.phase in SETTLED:
        if now.phase == "succeeded" and same:
            return ()
        cause = {"failed": "it has failed", "stopped": "nothing of it is in Slurm"}.get(now.phase, words)
        return (Step("create", "allocation", asked or cause),)
    if recreate:
        return (Step("replace", "allocation", asked or "`--recreate`"),)
    if same:
        return ()
    if now.phase == "pending" or set(other) & set(_READ_ONCE) or (fresh and not now.begins_runs):
        return (Step("replace", "allocation", asked or words),)
    change = (Step("change", "files", words),) if other or due else ()
    return (*change, Step("generation", now.follows, asked or words))


def _other_files(plan: Plan, sent: Mapping[str, Any], changed: Sequence[Changed]) -> list[str]:
    """Return the paths of the files that are not as they were sent."""
    want = hashes_of(plan)
    # A new version of jobctl alone changes no job: earlier ones wrote no `max_duration` there.
    told = any(one.key.startswith("recovery") for one in changed)
    if not told and sent.get("slurm.json") == settings_of_earlier(plan):
        want.pop("slurm.json")
    return [path for path, digest in want.items() if sent.get(path) != digest]
