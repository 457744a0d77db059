"""Which of the folders that `down` has made have the logs of the last run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.archive import last_folders
from jobctl.jobspec.deploy.store.jobdir import JobDir

LEFT = {"failed": ["h1"]}
ALL: dict[str, Any] = {"failed": []}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ((), ["1", "2", "3"]),
        ((("up", {}),), ["2", "3"]),  # a `down` that was cut off tells nothing
        ((("down", LEFT), ("step", {}), ("down", ALL)), ["3"]),
        ((("down", ALL), ("down", ALL), ("down", ALL)), ["3"]),
        ((("down", ALL), ("down", LEFT)), ["2", "3"]),
        ((("down", ALL), ("down", LEFT), ("down", ALL)), ["2", "3"]),
        ((("down", ALL), ("down", LEFT), ("down", LEFT)), ["2", "3"]),
        ((("down", LEFT), ("down", LEFT)), ["1", "2", "3"]),
        ((("up", {}), ("down", LEFT), ("down", ALL)), ["2", "3"]),
        ((("down", LEFT), ("up", {})), ["3"]),
        ((("down", LEFT), ("step", {})), ["3"]),
        ((("down", LEFT), ("up", {}), ("down", ALL)), ["3"]),
    ],
)
def test_what_a_down_left_to_the_next_one_is_of_the_same_run(
    tmp_path: Path, told: tuple[tuple[str, dict[str, Any]], ...], found: list[str]
) -> None:
    """Each event is told half a second after the folder of its number was made."""
    job = JobDir(tmp_path / "jobs" / "demo")
    job.create()
    assert last_folders(job) == []
    for number in (1, 2, 3):
        folder = job.history / str(number)
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    for at, (kind, more) in enumerate(told, 1):
        events.record(job.events, at + 0.5, kind, "", **more)
        events.record(job.events, at + 0.6, "host-failed", "")
    assert [folder.name for folder in last_folders(job)] == found
