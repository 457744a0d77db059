"""How often a job goes on in another allocation: not for ever, if none of them gets anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.allocation.coordinator import Coordinator
from jobctl.jobspec.allocation.generation import Generations
from jobctl.jobspec.allocation.interrupted import BRIEF, IN_VAIN
from jobctl.jobspec.allocation.record import Record

WHY = "the time limit is near"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "node-0").mkdir()
    return tmp_path


def allocation(work: Path, seconds: float, step: int | None = None, following: str | None = "8") -> dict[str, Any]:
    """Have an allocation end after some seconds, in which the job has come to a step; return what it has written."""
    (work / "node-0" / "report.json").write_text(json.dumps({"progress": step}))
    coordinator: Any = SimpleNamespace(
        job_id="7",
        started=100.0,
        settings={"stop_grace": 1.0},
        generations=Generations(str(work), "7"),
        record=Record(str(work), {"SLURM_JOB_ID": "7"}),
        scheduler=SimpleNamespace(
            go_on_later=lambda is_ended: (following, "submitted" if following else "`requeue: off`")
        ),
        signals=[],
    )
    Coordinator.go_on_later(coordinator, {"reason": WHY, "since": 100.0 + seconds})
    written: dict[str, Any] = json.loads((work / "run" / "allocation.json").read_text())
    return written


def test_a_job_whose_allocations_end_at_once_without_a_step_fails(work: Path) -> None:
    brief, longer = BRIEF - 1, BRIEF + 1
    row = [brief] * (IN_VAIN - 1)
    assert {allocation(work, seconds)["state"] for seconds in (*row, longer, *row)} == {"handed-over"}
    last = allocation(work, brief)
    assert (last["state"], last["result"]["phase"]) == ("ended", "failed")
    said = f"{WHY}: {IN_VAIN} allocations in a row were over within 5 s; is `slurm.time` long enough?"
    assert last["result"]["reason"] == said


def test_a_job_that_has_made_a_step_goes_on(work: Path) -> None:
    assert [allocation(work, BRIEF - 1, step)["next"] for step in range(2 * IN_VAIN)] == ["8"] * (2 * IN_VAIN)
    assert (work / "run" / "job_id").read_text() == "8\n"


def test_a_job_that_may_not_go_on_says_why(work: Path) -> None:
    result = allocation(work, 3600.0, 9, following=None)["result"]
    assert (result["phase"], result["reason"]) == (
        "failed",
        f"{WHY}, and the job cannot go on in another allocation: `requeue: off`",
    )


def test_a_job_goes_on_where_there_is_no_room_for_the_number_of_the_next_one(work: Path) -> None:
    (work / "run" / "job_id").symlink_to("/dev/full")
    assert allocation(work, 3600.0, 9)["state"] == "handed-over"
