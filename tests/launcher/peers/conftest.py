"""Launchers that speak to each other, and their clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobctl.jobspec.launcher.peers import done_nodes, peers
from jobctl.jobspec.launcher.peers import orders as peer_orders
from jobctl.jobspec.launcher.recovery import autonomy
from tests.tools.peer_links import Clock, Launchers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (autonomy, done_nodes, peer_orders, peers):
        monkeypatch.setattr(module, "boot_time", made.now)
    return made


@pytest.fixture
def job(tmp_path: Path, clock: Clock) -> Iterator[Launchers]:
    made = Launchers(tmp_path, clock)
    yield made
    made.close()
