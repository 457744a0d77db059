"""What nodes use, as engines and /proc tell."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.usage import NodeUsage, parse_stats
from jobctl.jobspec.deploy.store.processes import usage
from tests.tools.waiting import promptly


def stats(**memory: Any) -> dict[str, Any]:
    return {"cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}}, "memory_stats": memory}


@pytest.mark.parametrize(
    ("said", "used"),
    [
        (stats(usage=1000, stats={"inactive_file": 300}), NodeUsage(2.5, 700.0)),
        (stats(usage=1000, stats={"total_inactive_file": 300, "cache": 500}), NodeUsage(2.5, 700.0)),  # cgroup v1
        (stats(usage=1000, stats={"inactive_file": 2000}), NodeUsage(2.5, 1000.0)),
        (stats(usage=1000), NodeUsage(2.5, 1000.0)),
        (stats(), NodeUsage(2.5, None)),  # of a container that has ended
        (stats(usage="much", stats=7), NodeUsage(2.5, None)),
        ({"cpu_stats": {"cpu_usage": {"total_usage": True}}, "memory_stats": []}, NodeUsage(None, None)),
        (None, NodeUsage(None, None)),
    ],
)
def test_what_an_engine_says_of_a_container(said: object, used: NodeUsage) -> None:
    assert parse_stats(said) == used


def test_processes_of_this_machine_are_added_up() -> None:
    code = "kept = bytearray(64 << 20)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as busy:
        try:
            promptly(lambda: (usage([busy.pid]).cpu_seconds or 0.0) > 0.2 and (usage([busy.pid]).memory or 0) > 64e6)
            one, twice = usage([busy.pid]), usage([busy.pid, busy.pid])
            assert (twice.memory or 0.0) > 1.9 * (one.memory or 0.0)
        finally:
            busy.kill()
    assert usage([busy.pid, 2**22 + os.getpid()]) == NodeUsage(0.0, 0.0)
