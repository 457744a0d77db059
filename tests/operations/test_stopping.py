"""`stop`: what it says of nodes that do as they are told, and of those that do not; and commands that wait for others, which change the job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.model.control import JobResult, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import LockLost
from jobctl.jobspec.operations.errors import ChangedMeanwhile, HostsFailed, NotYours, OperationError, PartlyDone
from jobctl.jobspec.operations.lifecycle.applying import TRIES, while_others_change
from jobctl.jobspec.operations.lifecycle.base import JobRequest
from jobctl.jobspec.operations.lifecycle.down import take_down
from jobctl.jobspec.operations.lifecycle.on_hosts import HostsJob
from jobctl.jobspec.operations.reporter import SILENT
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.options import Format
from jobctl.views.outcome import finish_stop
from tests.deploy.apply.test_executor import RUNNING, TWO


class Stopping:
    """A job of two nodes that runs; told to stop, the nodes in `deaf` go on."""

    plan = None

    def __init__(self, directory: Path, *deaf: int) -> None:
        self.job, self.deaf, self.observed = JobDir(directory / "jobs" / "demo"), deaf, RUNNING
        self.job.create()
        self.others = 0  # commands that change the job before this one gets the lock
        self.failures: dict[str, Any] = {}
        self.check_here = lambda: None

    @contextlib.contextmanager
    def lock(self, what: str, *, break_it: bool) -> Iterator[None]:
        if self.others:  # which have the lock until then
            (self.job.root / "plan.json").write_text(str(self.others))
            self.others -= 1
        yield

    def owners(self, observed: Observed) -> frozenset[str]:
        return observed.owners

    def observe(self) -> Observed:
        return self.observed

    def places(self) -> tuple[str, ...]:
        return ("h0", "h1")

    def keep(self, ledger: Ledger) -> None:
        self.observed = replace(self.observed, control=replace(self.observed.control, ledger=ledger))

    def stop_processes(self, grace: float) -> None:
        ended = (node if node.node in self.deaf else replace(node, state="exited") for node in self.observed.nodes)
        self.observed = replace(self.observed, nodes=tuple(ended))


def stop(job: Any, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Stop the job, and return the exit code and what was said."""
    done = HostsJob(job).stop(JobRequest(None), SILENT)
    code = finish_stop(job, done, Format.text)
    return code, capsys.readouterr().err


def test_a_job_that_has_stopped_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "job `demo` stopped; `jobctl up` resumes it from its last checkpoint\n"
    assert stop(Stopping(tmp_path), capsys) == (0, said)


def test_nobody_is_told_that_a_job_has_stopped_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = (
        "error: job `demo` is told to stop, but node 1 on h1 has not ended in time\n"
        "hint: `jobctl status demo` shows when that is so; `jobctl down demo` ends whatever runs\n"
    )
    assert stop(Stopping(tmp_path, 1), capsys) == (4, said)


def test_who_stops_a_job_hears_of_a_container_that_is_paused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing in it can end."""
    job = Stopping(tmp_path, 1)
    job.observed = replace(RUNNING, nodes=(RUNNING.nodes[0], replace(RUNNING.nodes[1], paused=True, container="c1")))
    said = "but node 1 on h1 (its container is paused: `docker unpause` lets it end) has not ended in time"
    code, err = stop(job, capsys)
    assert (code, said in err) == (4, True)


@pytest.mark.parametrize("result", [None, "stopped", "failed", "succeeded"])
def test_a_host_that_does_not_answer_has_not_stopped_the_second_time_either(
    result: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job: Any = Stopping(tmp_path)
    job.failures = {host: HostError(host, "no-route", "no way", "a hint") for host in ("h1", "spare")}
    if result is not None:
        job.keep(Ledger(0.0, result=JobResult(result, "before", 1.0)))
    said = (
        "error: h1: no way\n"
        "hint: a hint\n"
        f"error: job `demo` is {result or 'stopped'}, and whether it has ended on h1 is not known\n"
        "hint: processes there end by themselves, at the latest after `host_timeout`; `jobctl status demo` shows it\n"
    )
    ended = result == "succeeded"  # on all of its hosts, then
    assert stop(job, capsys) == ((0, "job `demo` is succeeded already\n") if ended else (4, said))


@pytest.mark.parametrize("when", ["told", "seen"])
def test_hosts_that_go_silent_once_they_know_are_no_job_that_was_not_changed(tmp_path: Path, when: str) -> None:
    job: Any = Stopping(tmp_path)

    def silent(*_: Any) -> Any:
        raise HostError("h0", "lost", "the connection broke")

    def stop_processes(grace: float) -> None:
        job.observe = silent
        if when == "told":
            silent()

    job.stop_processes = stop_processes
    words = "job `demo` is to stop, and whether it has is not known: h0: the connection broke"
    with pytest.raises(PartlyDone, match=words):
        HostsJob(job).stop(JobRequest(None), SILENT)


@pytest.mark.parametrize("when", ["told", "seen"])
def test_who_loses_the_lock_once_hosts_know_of_the_end_has_changed_the_job(tmp_path: Path, when: str) -> None:
    """Another command may have begun it again by now: it is not written down that the job has stopped."""
    job: Any = Stopping(tmp_path)

    def lost(*_: Any) -> Any:
        raise LockLost("the lock on this machine was lost")

    setattr(job, "stop_processes" if when == "told" else "check_here", lost)
    with pytest.raises(PartlyDone, match="whether it has is not known: the lock on this machine was lost"):
        HostsJob(job).stop(JobRequest(None), SILENT)
    assert not job.job.events.exists()


@pytest.mark.parametrize("command", ["stop", "restart", "down"])
def test_a_command_that_waited_for_another_does_not_go_by_what_it_knew_before(command: str, tmp_path: Path) -> None:
    """An `up` may have brought the job to more hosts, which `down` would leave as they are."""
    job: Any = Stopping(tmp_path)
    job.plan, job.others = TWO, 1
    job.preconnect = job.has_files = lambda: True
    request = JobRequest()
    commands = {
        "stop": lambda: HostsJob(job).stop(request, SILENT),
        "restart": lambda: HostsJob(job).restart(None, request, SILENT),
        "down": lambda: take_down(job, request, SILENT),
    }
    with pytest.raises(ChangedMeanwhile, match="another command has changed job `demo` meanwhile"):
        commands[command]()
    assert job.observed is RUNNING


@pytest.mark.parametrize(("when", "error"), [("prepare", HostsFailed), ("stop_processes", PartlyDone)])
def test_nothing_was_changed_only_until_processes_are_told_to_end(
    when: str, error: type[OperationError], tmp_path: Path
) -> None:
    """A restart whose hosts go silent: each is named."""
    job: Any = Stopping(tmp_path)
    silent = AllUnreachable({"h0": HostError("h0", "lost", "gone")}, RUNNING)

    def fail(*_: Any, **__: Any) -> Any:
        raise silent

    job.plan, job.inventory, job.image = TWO, None, None
    job.preconnect = lambda: None
    job.ids = job.service_ids = job.spare_ids = lambda plan: dict.fromkeys((0, 1), ArtefactId("new"))
    job.engines = fail if when == "prepare" else lambda hosts, patience: {}
    job.stop_processes = fail
    with pytest.raises(error) as failed:
        HostsJob(job).restart("1", JobRequest(), SILENT)
    assert (type(failed.value), dict(failed.value.failures)) == (error, dict(silent.failures))


def test_such_a_command_begins_anew_until_it_is_alone(tmp_path: Path) -> None:
    job: Any = Stopping(tmp_path)
    job.others = 2
    opened = []

    def attempt() -> Any:
        opened.append(job.others)
        return HostsJob(job).stop(JobRequest(1.0), SILENT)

    assert while_others_change(attempt).phase == "stopped"
    assert opened == [2, 1, 0]
    job.others = 99
    with pytest.raises(NotYours):
        while_others_change(attempt)
    assert len(opened) == 3 + TRIES
