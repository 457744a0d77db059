"""What becomes of a job whose processes Slurm, or a person, has told to end: it goes on elsewhere, or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import LINGER

if TYPE_CHECKING:
    from typing import Optional

    from jobctl.jobspec.allocation.coordinator import Coordinator
    from jobctl.jobspec.launcher.system.files import Json


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
