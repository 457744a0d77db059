"""Plans of short specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context, Placement
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text

BASE = "name: job\nframework: torch\nscript: train.py\nimage: img\n"


def spec_of(text: str, base: str = BASE) -> Any:
    loaded = load_text(Path("/specs/job.yaml"), base + text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    return loaded.spec


def make(text: str = "", hosts: str = "", placement: Any = None, devices: Any = None, base: str = BASE) -> Plan:
    """Plan a job on hosts, or on this machine where there are none."""
    target: Any = "compose" if hosts else "local"
    known = parse_hosts(hosts, "hosts.txt").hosts if hosts else ()
    return planner.plan(
        spec_of(text, base), known, Context(target, "/specs", "me@here", "1.0"), Placement(placement or {}), devices
    )
