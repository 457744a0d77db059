"""What `status` shows of a job in Slurm beside its nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlurmState:
    """A job as Slurm has it: `nodes` in Slurm's own writing, `expected_start` since the epoch, `time_left` in seconds.

    `position` is its number among those that wait for the same partition, None if it does not wait or nobody knows.
    """

    job_id: int
    state: str
    reason: str | None
    expected_start: float | None
    nodes: str | None
    time_left: float | None
    position: int | None = None
