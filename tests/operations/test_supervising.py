"""`supervise` of a job that is recovered elsewhere: it tells what happens, and decides nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions, dump_inventory
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import hold
from jobctl.jobspec.deploy.store.processes import SUPERVISES_MARK, start_ticks, with_marks
from jobctl.jobspec.deploy.targets import background
from jobctl.jobspec.operations.errors import NotYours, PartlyDone
from jobctl.jobspec.operations.lifecycle import supervise as supervising
from jobctl.jobspec.operations.lifecycle.telling import start_supervisor
from jobctl.jobspec.operations.resolve.job import AS_STARTED
from jobctl.jobspec.operations.targets.hosts import OnHosts
from jobctl.jobspec.spec.hosts import Host

NOBODY = Observed(NOTHING, (), None)
SILENT = AllUnreachable({"login": HostError("login", "slurm-silent", "Slurm does not answer")}, NOBODY, "")


class PlayedJob:
    """A job in Slurm: each look finds the next of its phases, and tells of one event."""

    def __init__(self, directory: Path, *looks: Any) -> None:
        self.looks, self.pauses, self.gathered = list(looks), list[float](), 0
        told = iter([["before"], *[[f"event {n}"] for n in range(1, 9)]])
        events = SimpleNamespace(gather=self.gather, new=lambda: [{"message": text} for text in next(told)])
        plan = SimpleNamespace(target="slurm")
        self.job = JobDir(directory / "jobs" / "demo")
        self.job.create()
        self.handle = SimpleNamespace(
            plan=plan, job=self.job, observe=self.observe, interval=1.0, events=lambda: events
        )

    def gather(self) -> None:
        self.gathered += 1

    def observe(self) -> Observed:
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return replace(NOBODY, verdict=found)

    def deployer(self, command: str) -> Any:
        raise AssertionError("nothing is decided here")


def said(job: PlayedJob, monkeypatch: pytest.MonkeyPatch, *, background: bool = False) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(supervising, "pause", job.pauses.append)
    supervising.supervise(job, lines.append, background=background)  # type: ignore[arg-type]
    return lines


def test_it_tells_until_the_job_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once what a job waits for, and everything that happens, also last."""
    waits = ("pending", "job 7 waits")
    job = PlayedJob(tmp_path, waits, waits, SILENT, ("running", None), ("failed", "rank 1 failed"))
    assert said(job, monkeypatch) == [
        "job `demo` is recovered inside its allocation: jobctl tells what happens there, and decides nothing",
        *("event 1", "pending: job 7 waits", "event 2", "event 3", "unknown: login: Slurm does not answer", "event 4"),
        *("event 5", "nothing left to supervise: the job has failed: rank 1 failed"),
    ]
    assert (job.pauses, job.gathered) == ([1.0, 1.0, supervising.UNHEARD, 1.0], 6)


def test_what_a_supervisor_starts_is_no_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`down` ends processes with that mark: a command of `notify` may have brought another job up."""
    job = PlayedJob(tmp_path, ("succeeded", None))
    seen: list[str | None] = []
    monkeypatch.setenv(SUPERVISES_MARK, str(job.job.root))
    monkeypatch.setattr(job.handle, "observe", lambda: (seen.append(os.environ.get(SUPERVISES_MARK)), job.observe())[1])
    said(job, monkeypatch, background=True)
    assert seen == [None]


def test_a_supervisor_that_keeps_its_mark_is_found_by_it(tmp_path: Path) -> None:
    job = JobDir(tmp_path / "jobs" / "demo")
    script = """
import subprocess
from jobctl.jobspec.deploy.targets.background import keep_mark
keep_mark()
with subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL) as child:
    print(child.pid, flush=True)
"""
    environ = {**os.environ, SUPERVISES_MARK: str(job.root)}
    with subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())
        try:
            assert list(with_marks(f"{SUPERVISES_MARK}={job.root}")) == [supervisor.pid]
            assert background.end_left_behind(job)
            assert supervisor.wait() == -signal.SIGTERM
            assert start_ticks(child) is not None
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("phase", "words"),
    [(("succeeded", None), "has succeeded"), (("stopped", "by the user"), "was stopped: by the user")],
)
def test_it_says_how_the_job_has_ended(phase: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(PlayedJob(tmp_path, phase), monkeypatch)[-1] == f"nothing left to supervise: the job {words}"


def test_one_process_is_left_behind_which_is_in_no_hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock by which others know it, and looks less often than a person does, who may look on beside it."""
    looks = (("pending", "job 7 waits"), ("running", None), SILENT, ("succeeded", None))
    job = PlayedJob(tmp_path, *looks)
    said(job, monkeypatch, background=True)
    assert job.pauses == [supervising.PACE_WAITING, supervising.PACE, supervising.PACE_WAITING]
    with hold(job.job.supervisor_lock, "supervise", wait=0.0):
        with pytest.raises(NotYours, match="another process tells of `demo`"):
            said(PlayedJob(tmp_path, ("succeeded", None)), monkeypatch, background=True)
        assert said(PlayedJob(tmp_path, ("succeeded", None)), monkeypatch)[-1].endswith("the job has succeeded")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DeployError("`supervise` ended with code 1", "see the log"), "`supervise` ended with code 1"),
        (OSError(errno.ENOSPC, "No space left on device"), "no supervisor can be started: No space left on device"),
    ],
)
def test_a_supervisor_that_does_not_start_is_no_job_that_was_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(background, "start_supervisor", fail)
    with pytest.raises(PartlyDone, match=f"job `demo` is as asked, but {words}"):
        start_supervisor(JobDir(tmp_path / "jobs" / "demo"))


def test_a_supervisor_has_the_hosts_as_up_has_recorded_them(tmp_path: Path) -> None:
    """A supervisor starts again where these differ. Once a host had left the hosts file, it never stopped doing so."""
    recorded = Inventory((Host("h1"), Host("h2")), SshOptions(tmp_path / "config"), left=("h2",))
    job = JobDir(tmp_path / "jobs" / "demo")
    job.create()
    (job.root / "job.json").write_text(json.dumps({"target": "compose", "reach": dump_inventory(recorded)}))
    assert OnHosts().known(job, AS_STARTED).inventory == job.inventory() == recorded
