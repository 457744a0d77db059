"""A launcher in an allocation of Slurm that its node runner tells to end."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.node.agent import Launcher
from tests.launcher.conftest import PATIENCE, Node
from tests.tools.waiting import promptly

SAVES = """
import pathlib, signal, sys, time
def save(number, frame):
    pathlib.Path("saved").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("ready").touch()
time.sleep(600)
"""


def test_its_processes_get_the_time_that_the_runner_has_written_down_meanwhile(node: Node) -> None:
    own = node.root / "hosts" / "s1" / "0"
    own.mkdir(parents=True)
    launcher = node.start("--own", str(own), stop_grace=0.0, command=node.script(SAVES))
    node.order(1)
    promptly((node.root / "ready").exists)
    (own / "launch.json").write_text(json.dumps({**node.launch, "stop_grace": 10_000.0}))
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(PATIENCE) == 128 + signal.SIGTERM
    assert ((node.root / "saved").exists(), node.report()["state"]) == (True, "stopped")


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
