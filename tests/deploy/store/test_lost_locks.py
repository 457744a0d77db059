"""In an allocation, a command that has lost the job's lock changes nothing: it was stopped by Ctrl-Z, say."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model import liveness
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import JobLock, LockLost, break_lock
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.operations.lifecycle import in_allocation
from jobctl.jobspec.operations.lifecycle.base import UpOptions
from jobctl.jobspec.operations.lifecycle.in_allocation import AllocationChange, SlurmJob
from jobctl.jobspec.operations.reporter import SILENT
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.store.test_locks import go_on, holder, suspend
from tests.render.plans import SLURM, planned

__all__ = ["holder"]

PLAN = planned(dict(SLURM)["slurm"], "slurm")


class Untouched(LocalTransport):
    """A login node on which nothing may be done."""

    def run(self, argv: Any, stdin: Any = b"", *, timeout: float = 60.0) -> Any:
        pytest.fail(f"{argv} was run")


@pytest.fixture
def allocation(tmp_path: Path) -> SlurmAllocation:
    made = SlurmAllocation(JobDir(tmp_path), Inventory((Host("localhost"),)), "/shared/tiny", PLAN)
    made.login.transport = made.login.files.transport = Untouched("localhost")
    return made


CHANGES: dict[str, Callable[[LoginNode], object]] = {
    "submit": lambda login: login.submit((), b""),
    "order": lambda login: login.order("7", "stop-1", "stop"),
    "cancel": lambda login: login.cancel("7"),
    "end_batch": lambda login: login.end_batch("7"),
    "write": lambda login: login.write("run/sent.json", b"{}"),
    "send": lambda login: login.send((), ["run"], None, {}),
    "erase": lambda login: login.erase(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_who_has_lost_the_lock_changes_nothing_on_the_login_node(allocation: SlurmAllocation, change: str) -> None:
    with allocation.lock("first"):
        break_lock(allocation.job.lock)
        with JobLock(allocation.job.lock).hold("second"), pytest.raises(LockLost, match="on this machine"):
            CHANGES[change](allocation.login)


def test_who_loses_the_lock_while_files_are_sent_sends_no_more(
    allocation: SlurmAllocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, parcel = list[str](), SimpleNamespace(send=lambda files: sent.append("code"))
    package: Any = parcel

    def send(*of: Any, **more: Any) -> None:
        sent.append("files")
        break_lock(allocation.job.lock)

    monkeypatch.setattr(allocation.login.files, "send", send)
    with allocation.lock("up"), pytest.raises(LockLost):
        allocation.login.send((), ["run"], package, {})
    assert sent == ["files"]


def test_who_has_lost_the_lock_leaves_what_is_known_here_as_it_is(
    allocation: SlurmAllocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command has written down with which spec it has brought the job up."""
    job = SlurmJob(allocation)

    def change(*of: object) -> AllocationChange:
        break_lock(allocation.job.lock)
        return AllocationChange((), "running")

    monkeypatch.setattr(job, "change", change)
    monkeypatch.setattr(allocation, "events", lambda: SimpleNamespace(gather=lambda: None))
    for name in ("channels_of", "warn_of_another_spec"):
        monkeypatch.setattr(in_allocation, name, lambda *of: None)
    compiled: Any = None
    with allocation.lock("up"), pytest.raises(LockLost):
        job._apply(compiled, UpOptions(), SILENT)
    assert not tmp_path.exists()  # nothing is in it, not even the lock


def test_the_lock_of_a_command_that_is_stopped_expires_in_an_allocation(
    allocation: SlurmAllocation, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "EXPIRY", 0.0)  # however long that takes
    suspend(holder)
    with allocation.lock("down"):
        allocation.check_here()
    assert go_on(holder) == "lost\n"
