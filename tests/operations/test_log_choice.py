"""Which lines of its logs those who follow a job that was just brought up are shown."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.logs.files import Folder
from jobctl.jobspec.deploy.logs.reader import Logs
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.log_lines import LineSelection
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.inspect.logs import Choice, open_logs
from jobctl.jobspec.plan.generation import first_generation
from tests.deploy.apply.test_executor import TWO

SECOND = replace(first_generation(TWO), number=2)


@pytest.mark.parametrize(
    ("control", "chosen"),
    [
        (Control(SECOND, Ledger(9.0)), LineSelection(since=9.0, current=2)),
        (Control(None, Ledger(9.0)), LineSelection(since=9.0)),
        (Control(), LineSelection()),
    ],
)
def test_those_of_the_current_generation_whenever_its_hosts_say_they_were_written(
    tmp_path: Path, control: Control, chosen: LineSelection
) -> None:
    handle: Any = SimpleNamespace(
        observe=lambda: SimpleNamespace(control=control),
        logs=lambda selection, last: Logs(Folder(tmp_path), selection, last),
        job=SimpleNamespace(name="job"),
    )
    made = open_logs(handle, Choice(current=True))
    assert isinstance(made, Logs)
    assert made.selection == chosen


def test_logs_are_those_of_all_hosts_also_where_down_was_repeated(tmp_path: Path) -> None:
    """One host did not answer at first, and of another the first `down` had only a part."""
    job = JobDir(tmp_path / "jobs" / "demo")
    first = {"node-0/logs/setup.log": "first", "node-1/logs/setup.log": "a part"}
    second = {"node-1/logs/setup.log": "second", "node-2/logs/setup.log": "third"}
    for moment, files in ((10, first), (20, second)):
        folder = job.history / str(moment)
        for number, (name, text) in enumerate(files.items()):
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text(f"{text}\n")
            os.utime(folder / name, (moment + number, moment + number))
        os.utime(folder, (moment, moment))
    for at, kind, failed in ((1, "up", []), (11, "down", ["h1", "h2"]), (21, "down", [])):
        events.record(job.events, at, kind, "", failed=failed)
    handle: Any = SimpleNamespace(logs=lambda selection, last: None, job=job)
    lines = open_logs(handle, Choice()).lines(final=True)
    assert [(line.node, line.text) for line in lines] == [(0, b"first"), (1, b"second"), (2, b"third")]
