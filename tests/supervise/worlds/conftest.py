"""The modules of the launcher, as simulated worlds need them: with a clock, ports and numbers that a seed controls."""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Iterator

import pytest

from jobctl.jobspec.render.launcher import ORDER

from .clock import Clock


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    played = {"boot_time": Clock.now, "free_port": lambda address, first, *ports: first, "note": lambda text: None}
    for room in ORDER:
        module = importlib.import_module(f"jobctl.jobspec.launcher.{room.replace('/', '.')}")
        for name in played.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, played[name])
    monkeypatch.setattr(os, "urandom", lambda size: random.getrandbits(8 * size).to_bytes(size, "big"))
    yield
    Clock.sim = None
