"""How often Slurm is asked about a job: its controller serves everybody."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
from jobctl.jobspec.deploy.slurm.queue import QueueEntry, QueuePlace, SlurmLook
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.spec.hosts import Host

ALLOCATION = PurePosixPath("run/allocation.json")


class PlayedAllocation(SlurmAllocation):
    """A job whose login node notes what it is asked."""

    def __init__(self, directory: Path, entry: QueueEntry | None, *, problem: str | None = None) -> None:
        super().__init__(JobDir(directory / "jobs" / "tiny"), Inventory((Host("localhost"),)), str(directory))
        self.entry, self.problem, self.asked, self.placed = entry, problem, list[bool](), list[str]()
        told: Any = SimpleNamespace(look=self.answer, place=self.place, name="login")
        self.login = told

    def answer(self, *, ask: bool) -> SlurmLook:
        self.asked.append(ask)
        running = {"state": "running", "job_id": "7"} if self.entry and self.entry.runs else {}
        found = SlurmLook("7", 101.0, files={ALLOCATION: running}, there=True, age=1.0)
        if not ask:
            return found
        return SlurmLook("7", 101.0, self.entry, self.problem, asked=True, files=found.files, there=True, age=1.0)

    def place(self, job_id: str) -> QueuePlace:
        self.placed.append(job_id)
        if len(self.placed) > 1:
            raise HostError("login", "unreachable", "the connection is lost")
        return QueuePlace(3, 9, "gpu")


@pytest.mark.parametrize(
    ("entry", "asked"),
    [
        (QueueEntry("7", "RUNNING"), [True, False, False]),  # its coordinator says that it runs
        (
            QueueEntry("7", "PENDING", "Resources"),
            [True, True, True],
        ),  # nobody else tells, so its files alone are not read
        (None, [True, True, True]),
    ],
)
def test_a_look_is_one_call_and_asks_slurm_if_nobody_else_tells(
    entry: QueueEntry | None, asked: list[bool], tmp_path: Path
) -> None:
    allocation = PlayedAllocation(tmp_path, entry)
    for _ in asked:
        assert allocation.look().entry == entry
    assert allocation.asked == asked


def test_what_runs_is_not_changed_while_slurm_is_silent(tmp_path: Path) -> None:
    allocation = PlayedAllocation(tmp_path, QueueEntry("7", "RUNNING"), problem="Unable to contact slurm controller")
    allocation.observe()
    with pytest.raises(HostError, match="Unable to contact slurm controller"):
        allocation.refuse_silent()


def test_where_a_job_stands_in_the_queue_is_asked_seldom_and_may_stay_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("jobctl.jobspec.deploy.slurm.allocation.time.monotonic", lambda: now[0])
    allocation = PlayedAllocation(tmp_path, QueueEntry("7", "PENDING", "Priority"))

    def position() -> int | None:
        slurm = allocation.observe().slurm
        return slurm.position if slurm is not None else None

    assert [position() for _ in range(5)] == [3] * 5
    assert allocation.placed == ["7"]
    now[0] += 16.0
    assert [position() for _ in range(5)] == [None] * 5
    assert allocation.placed == ["7", "7"]
    allocation.entry = QueueEntry("7", "RUNNING")
    now[0] += 16.0
    assert (position(), len(allocation.placed)) == (None, 2)


@pytest.mark.parametrize(("age", "cancelled"), [(1.0, []), (3600.0, ["7"])])
def test_a_batch_script_that_ends_with_a_result_is_not_cancelled(
    age: float, cancelled: list[str], tmp_path: Path
) -> None:
    """Whatever the clock of its machine says: cancelled, the job would count as such."""
    files = {ALLOCATION: {"state": "ended", "job_id": "7", "result": {"phase": "succeeded", "at": 9e9 - age}}}
    looks = [
        SlurmLook("7", 101.0, QueueEntry("7", state), asked=True, files=files, there=True, age=age)
        for state in ("RUNNING", "RUNNING", "COMPLETED")
    ]
    allocation = PlayedAllocation(tmp_path, None)
    asked = list[str]()
    told: Any = SimpleNamespace(look=lambda ask: looks.pop(0), cancel=asked.append, name="login")
    allocation.login = told
    allocation.cancel(5.0)
    assert asked == cancelled
