"""What `up` was asked besides another spec: `--fresh` and `--recreate`. Kept with a change, for a supervisor that completes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobctl.jobspec.deploy.apply.executor import Fresh
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.records import dataclass

REQUEST_KEY = "asked"  # the key of `job.json`


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that shares nothing with earlier ones, if one is to begin, and whether containers are replaced that fit."""

    fresh: Fresh | None = None
    recreate: bool = False


def request_record(asked: Asked, last: Generation | None) -> dict[str, Any]:
    """Return what is kept of it; `last` is the generation that runs."""
    fresh = asked.fresh
    run = None if fresh is None else {"run_id": fresh.run_id, "checkpoint_dir": fresh.checkpoint_dir}
    return {REQUEST_KEY: {"fresh": run, "recreate": asked.recreate, "last": None if last is None else last.number}}


def asked_of(about: Mapping[str, Any] | None, last: Generation | None, *, waits: bool) -> Asked:
    """Return what is left to do of it; nothing once a generation has begun with it. `waits`: the change has not begun."""
    found = (about or {}).get(REQUEST_KEY)
    if not isinstance(found, dict) or not (waits or (last is not None and found.get("last") == last.number)):
        return Asked()
    run = found.get("fresh")
    fresh = Fresh(str(run["run_id"]), run.get("checkpoint_dir")) if isinstance(run, dict) and "run_id" in run else None
    return Asked(fresh, found.get("recreate") is True)
