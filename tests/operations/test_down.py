"""What `down` leaves to the command that gets the lock after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store import lock
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.lifecycle.base import JobRequest
from jobctl.jobspec.operations.lifecycle.down import TakenDown, take_down
from jobctl.jobspec.operations.reporter import SILENT
from tests.deploy.test_executor import RUNNING


class Job:
    """A job whose nodes are on h0 and h1, of which commands reach the hosts that they name."""

    plan = None

    def __init__(self, directory: Path) -> None:
        self.job, self.homes = JobDir(directory / "jobs" / "demo"), {"h0", "h1", "s0"}
        self.named: tuple[str, ...] = ()
        self.failures: dict[str, HostError] = {}
        self.job.create()

    def down(self, *hosts: str) -> TakenDown:
        """Take the job down on `hosts`."""
        self.named = hosts
        return take_down(self, JobRequest(), SILENT)  # type: ignore[arg-type]

    def where(self) -> tuple[str, ...]:
        return self.named

    def has_files(self) -> bool:
        return bool(self.homes & set(self.named))

    def events(self) -> Any:
        return SimpleNamespace(gather=lambda: None)

    def lock(self, what: str, *, break_it: bool) -> Any:
        return lock.hold(self.job.lock, what)

    def observe(self) -> Observed:
        """See it, as Fleet does: hosts that the generation names and nobody here knows do not answer."""
        tell = self.has_files()
        unknown = {"h0", "h1"} - set(self.named) if tell else set()
        self.failures = {host: HostError(host, "unreachable", "it runs there") for host in unknown}
        silent = {host: error.message for host, error in self.failures.items()}
        return replace(RUNNING, unreachable=silent) if tell else Observed(NOTHING, (), supervised=False)

    def take_down(self, grace: float) -> tuple[None, dict[str, Any]]:
        self.observe()
        self.homes -= set(self.named)
        return None, {}


@pytest.mark.parametrize("is_up", [True, False])
def test_what_the_next_command_writes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_up: bool) -> None:
    """An `up` that waits gets the lock as soon as `down` lets go of it."""
    import_module("jobctl.jobspec.notify.teller")  # with the lock as it is
    job, first = Job(tmp_path), lock.hold
    job.homes = job.homes if is_up else set()
    job.job.channels.write_text("{}")
    with contextlib.ExitStack() as up:

        @contextlib.contextmanager
        def hold(path: Path, command: str) -> Iterator[None]:
            with first(path, command):
                yield
            up.enter_context(first(path, "up", 0.0))
            job.job.channels.write_text('{"channels": []}')

        monkeypatch.setattr(lock, "hold", hold)
        assert job.down("h0", "h1", "s0").anything is is_up
        assert (job.job.channels.exists(), lock.read_holder(job.job.lock).get("command")) == (True, "up")


@pytest.mark.parametrize("is_up", [True, False])
def test_nothing_of_notifications_is_left(tmp_path: Path, is_up: bool) -> None:
    job = Job(tmp_path)
    job.homes = job.homes if is_up else set()
    for path in (job.job.channels, job.job.outbox, job.job.lock):
        path.write_text("{}")
    assert job.down("h0", "h1", "s0").anything is is_up
    assert {path.name for path in job.job.root.iterdir()} <= {"events.jsonl"}
