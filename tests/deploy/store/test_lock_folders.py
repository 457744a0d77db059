"""The folder of a job's lock: a command that finds no job leaves none, and takes away nothing of another command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store import lock
from jobctl.jobspec.deploy.store.lock import JobLock, break_lock


def test_a_lock_alone_leaves_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "lock"
    with JobLock(path).hold("stop"):
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_is_beside_a_lock_stays_with_it(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "lock"
    with JobLock(path).hold("up"):
        path.with_name("job.json").write_text("{}")
    assert sorted(os.listdir(path.parent)) == ["job.json", "lock"]


def test_a_lock_that_another_command_has_taken_stays(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "lock"
    with JobLock(path).hold("stop"):
        break_lock(path)
        path.write_text("another's")
    assert path.read_text() == "another's"


def test_a_folder_that_goes_as_it_is_to_be_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last holder removes it between the two steps of the next one."""
    path, opened, went = tmp_path / "demo" / "lock", os.open, list[Path]()

    def removed_before(name: Any, *more: Any) -> int:
        if not went:
            went.append(path.parent)
            path.parent.rmdir()
        return opened(name, *more)

    monkeypatch.setattr(os, "open", removed_before)
    with lock.hold(path, "up", 1.0, pause=lambda _: None):
        assert (path.exists(), went) == (True, [path.parent])
