"""How a job gets into another allocation while Slurm's controller is away, or slow: once, and as soon as it is back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.allocation import scheduler as module
from jobctl.jobspec.allocation.coordinator import Coordinator
from jobctl.jobspec.allocation.generation import Generations
from jobctl.jobspec.allocation.record import Record
from jobctl.jobspec.allocation.scheduler import ENDED, Scheduler, SlurmSilent
from jobctl.jobspec.allocation.succession import Succession

AWAY = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
SLOW = "scontrol: Command '['scontrol', 'requeue', '7']' timed out after 30.0 seconds"
BLIND = "squeue: [Errno 2] No such file or directory: 'squeue'"
UNREAD = "Protocol authentication error for job 7"
REFUSED = "Requested operation is presently disabled for job 7"


class PlayedSlurm(Scheduler):
    """Slurm with a queue. `troubles` are what commands say in turn, and whether they do what they are told all the same."""

    def __init__(self, requeue: str = "auto", **troubles: list[tuple[str, bool]]) -> None:
        super().__init__("/w", {"requeue": requeue, "job": "tiny"}, "7")
        self.queue = {"7": "RUNNING", "5": "RUNNING"}
        self.troubles, self.asked = troubles, list[str]()

    def ask(self, argv: list[str], environ: dict[str, str] | None = None) -> tuple[str, str]:
        command = argv[0]
        self.asked.append(command)
        trouble = self.troubles.get(command)
        words, arrives = trouble.pop(0) if trouble else ("", True)
        if arrives and command in ("scontrol", "sbatch"):
            self.queue["7" if command == "scontrol" else f"{len(self.queue) + 6}"] = "PENDING"
        if words:
            return "", words
        if command == "squeue":
            comments = {number: "jobctl /other" if number == "5" else "jobctl /w" for number in self.queue}
            return "".join(f"{number}|{self.queue[number]}|{comments[number]}\n" for number in self.queue), ""
        return f"{max(self.queue)};cluster\n", ""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_INTERVAL", 0.0)


def test_a_job_goes_on_once_the_controller_is_back() -> None:
    slurm = PlayedSlurm(squeue=[(AWAY, False), ("", True)], scontrol=[(AWAY, False)] * 2)
    assert slurm.go_on_later() == ("7", "requeued")
    assert slurm.asked == ["squeue", *["squeue", "scontrol"] * 3]
    slurm = PlayedSlurm("chain", sbatch=[(AWAY, False)] * 3)
    assert slurm.go_on_later() == ("8", "submitted again as job 8")


class GreetingSlurm(PlayedSlurm):
    """A cluster whose own `sbatch` prints more than the number of the job, or says something else."""

    def __init__(self, *said: str) -> None:
        super().__init__("chain")
        self.said = list(said)

    def ask(self, argv: list[str], environ: dict[str, str] | None = None) -> tuple[str, str]:
        said = super().ask(argv, environ)
        return (self.said.pop(0), "") if argv[0] == "sbatch" and self.said else said


@pytest.mark.parametrize("said", ["--- Welcome to Foo ---\n8;foo\nHave a nice day\n", "--- Welcome to Foo ---\n"])
def test_a_clusters_own_sbatch_may_print_more(said: str) -> None:
    """If it does not name the job, the queue does."""
    slurm = GreetingSlurm(said)
    assert slurm.go_on_later()[0] == "8"
    assert slurm.asked.count("sbatch") == 1


@pytest.mark.parametrize(("said", "preempted"), [("2026-11-28T18:19:09 \n", True), ("N/A \n", False), ("", False)])
def test_slurm_says_whether_it_preempts_a_job(said: str, *, preempted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Scheduler("/w", {"requeue": "chain", "job": "tiny"}, "7")
    monkeypatch.setattr(slurm, "ask", lambda argv: (said, ""))
    assert slurm.is_preempted() == preempted


def test_a_preempted_job_that_slurm_does_not_requeue_is_submitted_again() -> None:
    """Slurm ends it already. One that it may requeue is left to it."""
    slurm = PlayedSlurm("chain")
    slurm.queue["7"], slurm.preempted = "COMPLETING", True
    assert slurm.try_to_go_on() == ("8", "submitted again as job 8")
    slurm = PlayedSlurm("auto")
    slurm.queue["7"], slurm.preempted = "COMPLETING", True
    with pytest.raises(SlurmSilent):
        slurm.try_to_go_on()


@pytest.mark.parametrize("how", ["auto", "chain"])
def test_what_slurm_has_heard_is_not_asked_for_again(how: str) -> None:
    """The job would train a second time after its end."""
    command = "scontrol" if how == "auto" else "sbatch"
    slurm = PlayedSlurm(how, **{command: [(SLOW, True)]})
    following = "7" if how == "auto" else "8"
    assert slurm.go_on_later()[0] == following
    assert slurm.asked == ["squeue", command, "squeue"]


def test_a_requeue_that_arrives_late_is_not_followed_by_a_submission() -> None:
    """The second one is refused, as the job waits already."""
    slurm = PlayedSlurm(scontrol=[(SLOW, False), ("Job is pending execution for job 7", True)])
    assert slurm.go_on_later() == ("7", "requeued")
    assert "sbatch" not in slurm.asked


def test_a_refusal_is_final() -> None:
    slurm = PlayedSlurm(scontrol=[(REFUSED, False)], sbatch=[("Invalid account", False)])
    assert slurm.go_on_later() == (None, "Invalid account")
    assert slurm.asked == ["squeue", "scontrol", "squeue", "sbatch"]
    assert PlayedSlurm("off").go_on_later() == (None, "`requeue: off`")


@pytest.mark.parametrize(("how", "following"), [("auto", "7"), ("chain", "8")])
def test_where_nobody_may_look_into_the_queue_a_job_goes_on_at_once(how: str, following: str) -> None:
    slurm = PlayedSlurm(how, squeue=[(BLIND, False)])
    assert slurm.go_on_later(lambda: True)[0] == following
    assert len(slurm.asked) == 2


@pytest.mark.parametrize(("how", "command"), [("requeue", "scontrol"), ("chain", "sbatch")])
def test_a_trouble_with_all_of_slurms_commands_may_pass(how: str, command: str) -> None:
    """As where munge starts again on the machine of the batch script."""
    trouble = (f"{command}: error: Protocol authentication error", False)
    slurm = PlayedSlurm(how, squeue=[(BLIND, False)], **{command: [trouble]})
    assert slurm.go_on_later()[0] == ("7" if how == "requeue" else "8")
    assert slurm.asked == ["squeue", command] * 2


@pytest.mark.parametrize("trouble", [(SLOW, True), (AWAY, False), (UNREAD, True)])
def test_where_nobody_may_look_into_the_queue_slurm_is_asked_once(trouble: tuple[str, bool]) -> None:
    """Two jobs would be in the queue if it has done what was asked, or does so later."""
    ends = iter([False, False, True])
    slurm = PlayedSlurm(squeue=[(BLIND, False)] * 4, scontrol=[trouble])
    with pytest.raises(SlurmSilent, match="No such file"):
        slurm.go_on_later(lambda: next(ends))
    assert set(slurm.asked) == {"squeue", "scontrol"}
    assert slurm.asked.count("scontrol") == 1


@pytest.mark.parametrize("words", [REFUSED, "Access/permission denied for job 7", BLIND.replace("squeue", "scontrol")])
def test_where_nobody_may_look_into_the_queue_a_refused_requeue_leads_to_the_next_job(words: str) -> None:
    slurm = PlayedSlurm(squeue=[(BLIND, False)] * 2, scontrol=[(words, False)])
    assert slurm.go_on_later(lambda: True) == ("8", "submitted again as job 8")
    assert slurm.asked == ["squeue", "scontrol", "squeue", "sbatch"]


def test_a_submission_without_an_answer_is_the_last_request_of_the_blind() -> None:
    ends = iter([False, False, True])
    slurm = PlayedSlurm(squeue=[(BLIND, False)] * 5, scontrol=[(REFUSED, False)], sbatch=[(SLOW, True)])
    with pytest.raises(SlurmSilent):
        slurm.go_on_later(lambda: next(ends))
    assert [slurm.asked.count(command) for command in ("scontrol", "sbatch")] == [1, 1]


def test_a_refusal_says_nothing_of_a_request_before_it() -> None:
    """The first one has no answer, and may be done later than the second one is refused."""
    slurm = PlayedSlurm(squeue=[("", True), ("", True), (BLIND, False)], scontrol=[(SLOW, False), (REFUSED, False)])
    ends = iter([False, True])
    with pytest.raises(SlurmSilent, match="No such file"):
        slurm.go_on_later(lambda: next(ends))
    assert slurm.asked == ["squeue", "scontrol"] * 2 + ["squeue"]


@pytest.mark.parametrize("state", ENDED)
def test_an_allocation_that_has_ended_goes_on_after_no_other(state: str) -> None:
    """Slurm may list it for minutes: the job would be lost."""
    slurm = PlayedSlurm("chain")
    slurm.queue["6"] = state
    assert slurm.go_on_later()[0] not in (None, "6")
    assert "sbatch" in slurm.asked


def test_a_job_that_slurm_ends_already_is_not_submitted() -> None:
    slurm = PlayedSlurm()
    slurm.queue["7"] = "COMPLETING"
    with pytest.raises(SlurmSilent, match="Slurm ends job 7"):
        slurm.go_on_later(lambda: True)
    assert slurm.asked == ["squeue"]


def test_a_command_without_an_answer_may_have_arrived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "gate")
    monkeypatch.setattr(module, "COMMAND_TIMEOUT", 0.1)
    with pytest.raises(SlurmSilent, match="timed out"):
        Scheduler("/w", {}, "7").ask_surely(["sh", "-c", f'exec cat "{tmp_path}/gate"'])


def handed_over(work: Path, signals: list[int]) -> tuple[int, dict[str, Any]]:
    """Have a coordinator whose Slurm stays silent hand its job over; return its exit code, and what it has written."""
    (work / "run").mkdir()
    coordinator: Any = SimpleNamespace(
        job_id="7",
        started=100.0,
        settings={"stop_grace": 1.0},
        signals=signals,
        generations=Generations(str(work), "7"),
        record=Record(str(work), {"SLURM_JOB_ID": "7"}),
        scheduler=PlayedSlurm(squeue=[(AWAY, False)] * 2),
    )
    code = Coordinator.go_on_later(coordinator, {"reason": "the time limit is near", "since": 3700.0})
    return code, json.loads((work / "run" / "allocation.json").read_text())


def test_a_coordinator_gives_up_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HAND_OVER", -1.0)
    code, told = handed_over(tmp_path, [])
    assert (code, told["result"]["phase"]) == (1, "failed")
    assert told["result"]["reason"].endswith(f"cannot go on in another allocation: {AWAY}")


def test_a_coordinator_that_slurm_ends_meanwhile_leaves_it_to_slurm(tmp_path: Path) -> None:
    """Its request to requeue the job may have arrived."""
    code, told = handed_over(tmp_path, [signal.SIGTERM])
    assert (code, told["state"], told["result"]) == (143, "interrupted", None)


def test_a_node_runner_that_slurm_does_not_answer_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next turn asks again: the allocation is there until its time limit."""
    monkeypatch.setattr(module, "HAND_OVER", -1.0)
    left: Any = Succession(str(tmp_path), {"host_timeout": 6.0}, {"SLURM_JOB_ID": "7"})
    left.scheduler, left.home = PlayedSlurm(squeue=[(AWAY, False)]), "s1"
    left.go_on()
    assert left.scheduler.asked == ["squeue"]
    assert not (tmp_path / "run" / "allocation.json").exists()


def test_a_node_runner_submits_nothing_without_a_look_into_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch script, whose machine is lost, may have done that."""
    monkeypatch.setattr(module, "HAND_OVER", -1.0)
    slurm = PlayedSlurm(squeue=[(BLIND, False)])
    monkeypatch.setattr(Scheduler, "ask", lambda self, argv, environ: slurm.ask(argv))
    left = Succession(str(tmp_path), {"host_timeout": 6.0, "requeue": "auto", "job": "tiny"}, {"SLURM_JOB_ID": "7"})
    left.home = "s1"
    left.go_on()
    assert slurm.asked == ["squeue"]
