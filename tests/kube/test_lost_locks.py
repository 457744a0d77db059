"""A command that has lost the job's lock changes nothing in the cluster: it was stopped by Ctrl-Z, say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.pod_log_archive import PodLogArchive
from jobctl.jobspec.deploy.store.lock import JobLock, break_lock
from tests.kube.conftest import SPEC
from tests.kube.server import ApiServer
from tests.kube.store import Object
from tests.kube.world import World

UP = ("up", "--target", "kubernetes")
LOST = "error: the lock on this machine was lost"


@pytest.fixture
def lock(here: Path) -> Path:
    return here / "state" / "jobs" / "resnet" / "lock"


def known(lock: Path) -> dict[str, bytes]:
    """Return what is known here of the job, apart from what happened."""
    return {path.name: path.read_bytes() for path in lock.parent.glob("*.json")}


@pytest.mark.parametrize("command", ["up", "restart", "stop", "down"])
def test_who_has_lost_the_lock_changes_nothing(
    jobctl: Any, world: World, api: ApiServer, lock: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    jobctl(*UP)
    Path("job.yaml").write_text(SPEC + "args: [--epochs, '3']\n" if command == "up" else SPEC)
    as_ever = JobLock.hold

    @contextlib.contextmanager
    def hold(self: JobLock, *of: Any, **more: Any) -> Iterator[JobLock]:
        with as_ever(self, *of, **more) as held:
            break_lock(lock)
            yield held

    before, asked = known(lock), len(api.requests)
    with monkeypatch.context() as patch:
        patch.setattr(JobLock, "hold", hold)
        ran = jobctl(command, "job.yaml")
    assert (ran.code in (3, 4), ran.err.splitlines()[-2]) == (True, LOST)
    changes = [one for one in api.requests[asked:] if one.startswith(("PATCH", "DELETE")) and "dryRun" not in one]
    assert (changes, known(lock)) == ([], before)
    assert jobctl(command, "job.yaml").code == 0


def test_who_loses_the_lock_in_the_middle_does_no_more(jobctl: Any, world: World, api: ApiServer, lock: Path) -> None:
    def made(thing: Object) -> None:
        break_lock(lock)

    api.made.append(made)
    ran = jobctl(*UP)
    assert (ran.code, ran.err.splitlines()[-2], api.names()) == (4, LOST, ["ConfigMap resnet-launcher"])
    assert "error: 1 of 4 steps were done" in ran.err
    api.made.remove(made)
    assert jobctl("up").code == 0


def test_who_loses_the_lock_while_logs_are_collected_takes_nothing_down(
    jobctl: Any, world: World, api: ApiServer, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not say either that the job was taken down in part: that would be told of what runs now."""
    jobctl(*UP)
    before, names = known(lock), api.names()
    with monkeypatch.context() as patch:
        patch.setattr(PodLogArchive, "collect", lambda archive: break_lock(lock))
        ran = jobctl("down", "resnet")
    assert (ran.code, ran.err.splitlines()[-2], api.names(), known(lock)) == (3, LOST, names, before)
    assert "taken down" not in jobctl("events", "resnet").out
    assert jobctl("down", "resnet").code == 0
