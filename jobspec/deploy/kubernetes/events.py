"""What happened to a job in a cluster: what jobctl did, and what the cluster says of the job's objects and pods."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.kinds import EVENT, POD, Object
from jobctl.jobspec.deploy.kubernetes.mirror import Mirror
from jobctl.jobspec.deploy.kubernetes.pods import seconds
from jobctl.jobspec.deploy.store.events import EventFile
from jobctl.jobspec.deploy.store.jobdir import JobDir

# What a job's objects are called, and what controllers make of them: the Job of a role, and the pods of Jobs, with five
# random characters; replicas of kubeflow and paddle-operator; the Job of a TrainJob, and its pods. A job may be called
# like another one with a number or a word behind it (`resnet-2`), which is none of these.
_POD = r"(-\d+-[a-z0-9]{{5}})?"
_NAMES = rf"{{job}}((-(trainer|server|scheduler))?{_POD}|-(master|worker|ps)-\d+|-node-0{_POD})"


def is_about(event: Object, job: str) -> bool:
    """Say whether an event is about an object of a job, or what was made for one."""
    name = (event.get("involvedObject") or {}).get("name") or ""
    return re.fullmatch(_NAMES.format(job=re.escape(job)), name) is not None


def newest_warning(events: Sequence[Object], job: str, since: float, *, of_pods: bool = True) -> str | None:
    """Return the last thing that went wrong with a job, as the cluster tells it; what went wrong with pods only if `of_pods`."""
    wrong = [
        _told(event)
        for event in events
        if event.get("type") == "Warning"
        and is_about(event, job)
        and (of_pods or event["involvedObject"].get("kind") != POD.kind)
    ]
    last = max((one for one in wrong if one["time"] >= since), key=lambda one: float(one["time"]), default=None)
    return str(last["message"]) if last else None


class ClusterEvents:
    """The events of this machine's history, and those in the cluster, which forgets them after an hour."""

    def __init__(self, api: Api, job: JobDir) -> None:
        self._written = EventFile(job.events)
        self._mirror = Mirror(api, EVENT, "")
        self._job = job.name
        self._told: set[tuple[str, int]] = set()

    def gather(self) -> None:
        """Do nothing: what launchers keep goes with their pods, and the cluster tells what becomes of these."""

    def new(self) -> list[dict[str, Any]]:
        """Return what happened since the last call; an event that happens again is told again. Raises DeployError."""
        fresh = []
        for event in self._mirror.objects():
            again = event["metadata"]["uid"], _count(event)
            if again not in self._told and is_about(event, self._job):
                self._told.add(again)
                fresh.append(_told(event))
        return sorted([*self._written.new(), *fresh], key=lambda event: event["time"])


def _count(event: Object) -> int:
    return int(event.get("count") or (event.get("series") or {}).get("count") or 1)


def _told(event: Object) -> dict[str, Any]:
    """Return an event of the cluster in the form of jobctl's."""
    about, count = event["involvedObject"], _count(event)
    series = event.get("series") or {}
    stamp = event.get("lastTimestamp") or series.get("lastObservedTime") or event.get("eventTime")
    stamp = stamp or event.get("firstTimestamp") or event["metadata"].get("creationTimestamp")
    times = f" ({count} times)" if count > 1 else ""
    return {
        "time": seconds(stamp) or time.time(),
        "event": "cluster",
        "message": f"{about.get('kind')} {about.get('name')}: {event.get('reason')}: {event.get('message') or ''}{times}",
        "type": event.get("type") or "Normal",
        "by": event.get("reportingComponent") or (event.get("source") or {}).get("component") or None,
        "object": f"{about.get('kind')}/{about.get('name')}",
        "reason": event.get("reason"),
        "count": count,
    }
