"""Which lines of its logs those who follow a job that was just brought up are shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.logs.files import Folder
from jobctl.jobspec.deploy.logs.reader import Logs
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.log_lines import LineSelection
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
