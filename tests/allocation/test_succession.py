"""What is left of a job whose batch script's machine is lost: one node runner has it go on, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.allocation.messages import MARGIN
from jobctl.jobspec.allocation.record import FRESH, Record
from jobctl.jobspec.allocation.scheduler import Scheduler
from jobctl.jobspec.allocation.succession import ASK_INTERVAL, LEASE_END_MARGIN, TAKEOVER_TIMEOUT, Succession

TIMEOUT = 6.0
LATE = TIMEOUT + MARGIN + LEASE_END_MARGIN + 0.1
ENVIRON = {"SLURM_JOB_ID": "7"}


class PlayedScheduler:
    """Slurm, as far as a node runner asks it."""

    def __init__(self, *machines: str, following: str | None = "7") -> None:
        self.listed, self.following = list(machines), following
        self.asked: list[Any] = []

    def machines(self) -> list[str]:
        self.asked.append("machines")
        return self.listed

    def go_on_later(self) -> tuple[str | None, str]:
        self.asked.append("go on")
        return self.following, "requeued" if self.following else "`requeue: off`"

    def ask(self, argv: list[str]) -> tuple[str, str]:
        self.asked.append(argv)
        return "", ""


def runner(work: Path, slurm: PlayedScheduler) -> Any:
    """What a node runner keeps, whose batch script is on s1."""
    (work / "run").mkdir(exist_ok=True)
    made: Any = Succession(str(work), {"host_timeout": TIMEOUT}, ENVIRON)
    made.scheduler, made.home = slurm, "s1"
    return made


def told(work: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((work / "run" / "allocation.json").read_text())
    return found


def test_it_waits_for_leases_to_end_and_for_slurm_to_give_the_machine_up(tmp_path: Path) -> None:
    slurm = PlayedScheduler("s1", "s2")
    left = runner(tmp_path, slurm)
    left.consider(LATE - 0.2, 100.0)
    assert slurm.asked == []
    left.consider(LATE, 100.0)
    left.consider(LATE + 1, 101.0)
    assert slurm.asked == ["machines"]
    slurm.listed = []  # Slurm does not answer
    left.consider(LATE + ASK_INTERVAL, 100.0 + ASK_INTERVAL)
    assert "go on" not in slurm.asked
    slurm.listed = ["s2"]
    left.consider(LATE + 2 * ASK_INTERVAL, 100.0 + 2 * ASK_INTERVAL)
    assert slurm.asked[-1] == "go on"
    assert (told(tmp_path)["state"], told(tmp_path)["next"]) == ("handed-over", "7")
    assert (tmp_path / "run" / "job_id").read_text() == "7\n"


def test_of_several_one_does_it_and_another_if_that_dies(tmp_path: Path) -> None:
    first, second = PlayedScheduler("s2", "s3"), PlayedScheduler("s2", "s3", following="8")
    runner(tmp_path, first).consider(LATE, 100.0)
    other = runner(tmp_path, second)
    other.consider(LATE, 100.0)
    assert ("go on" in first.asked, "go on" in second.asked) == (True, False)
    other.consider(LATE + TAKEOVER_TIMEOUT, 100.0 + TAKEOVER_TIMEOUT)
    assert "go on" not in second.asked
    other.consider(LATE + TAKEOVER_TIMEOUT + 1, 106.0 + TAKEOVER_TIMEOUT)
    assert second.asked[-2:] == ["go on", ["scancel", "7"]]
    assert told(tmp_path)["next"] == "8"


def test_if_one_dies_only_one_of_the_others_does_it(tmp_path: Path) -> None:
    """Two jobs that go on would train at the same time."""
    runner(tmp_path, PlayedScheduler("s2", "s3", "s4")).consider(LATE, 100.0)
    others = [PlayedScheduler("s2", "s3", "s4"), PlayedScheduler("s2", "s3", "s4")]
    runners = [runner(tmp_path, slurm) for slurm in others]
    for seconds in (0.0, TAKEOVER_TIMEOUT + 1):
        for left in runners:
            left.consider(LATE + seconds, 100.0 + seconds)
    assert ["go on" in slurm.asked for slurm in others] == [True, False]
    for left in runners:
        left.consider(LATE + 2 * TAKEOVER_TIMEOUT + 2, 102.0 + 2 * TAKEOVER_TIMEOUT)
    assert ["go on" in slurm.asked for slurm in others] == [True, True]


def test_a_job_that_goes_on_is_not_submitted_twice(tmp_path: Path) -> None:
    """Slurm may have taken the next job, and not have ended this one."""
    first, second = PlayedScheduler("s2", "s3", following="8"), PlayedScheduler("s2", "s3", following="9")
    runner(tmp_path, first).consider(LATE, 100.0)
    other = runner(tmp_path, second)
    other.consider(LATE, 100.0)
    other.consider(LATE + TAKEOVER_TIMEOUT + 1, 101.0 + TAKEOVER_TIMEOUT)
    assert ("go on" in second.asked, second.asked[-1]) == (False, ["scancel", "7"])
    assert told(tmp_path)["next"] == "8"


def test_a_job_that_may_not_go_on_ends_with_the_reason(tmp_path: Path) -> None:
    slurm = PlayedScheduler("s2", following=None)
    runner(tmp_path, slurm).consider(LATE, 100.0)
    assert slurm.asked[-1] == ["scancel", "7"]
    assert told(tmp_path)["result"]["reason"] == (
        "s1, the machine of the batch script, is lost, and the job cannot go on in another allocation: `requeue: off`"
    )


def test_a_batch_script_that_was_given_up_writes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    old = Record(str(tmp_path), ENVIRON)
    old.write(state="running")
    runner(tmp_path, PlayedScheduler("s2")).consider(LATE, 100.0)
    monkeypatch.setattr("jobctl.jobspec.allocation.record.FRESH", FRESH - 1000)
    old.write()
    assert (old.superseded, told(tmp_path)["state"]) == (True, "handed-over")
    new = Record(str(tmp_path), ENVIRON)
    new.write(state="starting")
    new.write(state="running")
    assert (new.superseded, told(tmp_path)["by"]) == (False, new.me)


def test_a_command_that_is_told_to_end_together_with_its_job_still_answers() -> None:
    asked = Scheduler("/w", {}, "7").ask(["sh", "-c", "kill -TERM $$; echo requeued"])
    assert asked == ("requeued\n", "")
