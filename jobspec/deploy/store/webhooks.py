"""The webhooks of a job whose URLs may be on its hosts, as launchers read them there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.notification import Channel
from jobctl.jobspec.deploy.model.untrusted import Json, objects
from jobctl.jobspec.deploy.store.files import read_json

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.plan.types import Plan


def tells(plan: Plan) -> bool:
    """Say whether launchers of a plan tell people while no supervisor watches."""
    return any(node.launch.tells for node in plan.nodes)


def webhooks_for_hosts(job: JobDir, plan: Plan) -> Json | None:
    """Return the file that launchers get, None if they get none. It holds URLs, which are secrets."""
    if not tells(plan):
        return None
    kept = objects((read_json(job.channels) or {}).get("channels"))
    channels = [channel for channel in map(Channel.from_record, kept) if channel is not None]
    found = [
        {"key": one.key, "on": sorted(one.on), "url": one.how["url"], "format": one.how.get("format", "json")}
        for one in channels
        if one.kind == "webhook" and one.how.get("from_hosts") is True
    ]
    return {"version": 1, "webhooks": found} if found else None
