"""What becomes of a job whose processes Slurm, or a person, has told to end: it goes on elsewhere, or not.

And whether a job has run for as long as it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import LINGER
from jobctl.jobspec.allocation.scheduler import HAND_OVER
from jobctl.jobspec.launcher.restart_policy import certain_after

if TYPE_CHECKING:
    from typing import Optional

    from jobctl.jobspec.allocation.coordinator import Coordinator
    from jobctl.jobspec.launcher.system.files import Json

BRIEF = 5.0  # seconds in which an allocation gets nowhere
IN_VAIN = 3  # such allocations in a row, after which the job has failed


def judge_interrupted(coordinator: Coordinator, why: Json, now: float) -> Optional[int]:
    """Say with which code the batch script ends, None while it waits. `why`: what processes were told to end for.

    Of a preempted job, Slurm first tells the processes to end, and the batch script only after the job's grace. If that
    ended by itself meanwhile, Slurm would take the job for ended, and not requeue it.
    """
    told, record, chains = coordinator.told, coordinator.record, coordinator.settings["requeue"] == "chain"
    if "preempted" not in why:
        why["preempted"] = (chains or not told) and coordinator.scheduler.is_preempted()
    if why["preempted"] and (chains or not told):
        return coordinator.go_on_later({**why, "reason": "Slurm gives the nodes to another job"})
    if told:
        # Whether it goes on is for Slurm to say: it may have requeued the job.
        record.write(state="interrupted", reason=why["reason"])
        return 143
    if now - why["since"] < LINGER:
        return None  # where somebody cancels the job, the batch script hears of it in a moment
    record.result("failed", "its processes were told to end, as `scancel --signal=TERM` does", None)
    return 1


def over_time(coordinator: Coordinator, now: float) -> Optional[str]:
    """Return why the job may run no longer, None if it may; as a supervisor, only where its time is over for a while."""
    generations, limit = coordinator.generations, coordinator.settings.get("max_duration")
    if limit is None or generations.time_left(limit) >= 0.0:
        generations.overdue = None
        return None
    generations.overdue = now if generations.overdue is None else generations.overdue
    if now - generations.overdue < certain_after(limit):
        return None
    return "ran longer than `recovery.max_duration` (%g s)" % limit


def why_not_later(coordinator: Coordinator, why: Json) -> Optional[str]:
    """Return why the job does not go on in another allocation, None if it may: there it would end as soon as it begins.

    One that is warned as soon as it begins gets nowhere. Slurm starts a requeued job two minutes later at the earliest; and
    where `slurm.time` is left open, it is `max_duration`.
    """
    generations, limit = coordinator.generations, coordinator.settings.get("max_duration")
    told, step = generations.start, generations.step()
    nowhere = why["since"] - coordinator.started < BRIEF and step <= told.get("step", -1)
    brief = told.get("brief", 0) + 1 if nowhere else 0
    generations.note(brief=brief, step=step)
    if brief >= IN_VAIN:
        return "%d allocations in a row were over within %g s; is `slurm.time` long enough?" % (brief, BRIEF)
    if limit is not None and generations.time_left(limit) <= HAND_OVER + float(coordinator.settings["stop_grace"]):
        return "`recovery.max_duration` (%g s) leaves no time for another allocation" % limit
    return None
