"""What a launcher is told as it starts and what it reports, in tests that are about something else."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.launcher.order.launch import Launch
from jobctl.jobspec.launcher.report.node_report import LauncherProcess, NodeReport, StandbyState

LAUNCH: dict[str, Any] = {
    "node": 0,
    "host": "a",
    "role": "trainer",
    "nproc": 1,
    "start": [],
    "command": ["true"],
    "env": [],
    "log_name": "workerlog",
    "devices": ["cpu:0", "cpu:1", "cpu:2"],
    "setup": [],
    "secrets": [],
    "workdir": None,
    "interface": None,
    "interface_env": [],
    "stop_grace": 5.0,
    "hang_timeout": None,
}


def launch_of(**changes: Any) -> Launch:
    """Return the launch of node 0 of host a, which runs one process by itself, with these changes to its JSON."""
    return Launch.from_json({**LAUNCH, **changes})


def report_of(**changes: Any) -> NodeReport:
    """Return the report of node 0, which waits, with these changes."""
    return NodeReport(0, "trainer", LauncherProcess(1, 1), StandbyState("off", "none here"), **changes)
