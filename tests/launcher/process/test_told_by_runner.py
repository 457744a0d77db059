"""A launcher in an allocation of Slurm that its node runner tells to end."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.node.agent import Launcher


@pytest.mark.parametrize(
    ("number", "own", "goes_on"), [(signal.SIGTERM, "/own", True), (signal.SIGTERM, None, False), (None, "/own", False)]
)
def test_it_takes_its_time_though_the_other_launchers_have_ended(
    number: int | None, own: str | None, goes_on: bool
) -> None:
    """As where one node writes the checkpoint of all: a node runner, which has a lease of its own, has told them all to end."""
    silent = SimpleNamespace(attend=lambda: None), SimpleNamespace(held=lambda now: False)
    launcher: Any = SimpleNamespace(be_here=lambda: None, links=silent[0], lease=silent[1], signal=number, own=own)
    assert Launcher.pause(launcher, 0.0) is goes_on
