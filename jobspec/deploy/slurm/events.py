"""What happened to a job in Slurm: what jobctl did, what the allocation has written, and what launchers have kept."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.untrusted import Json, as_moment, as_text, is_moment, parse_object, texts
from jobctl.jobspec.deploy.slurm.job_state import held_words, verdict
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.queue import SlurmLook
from jobctl.jobspec.deploy.store.events import EventFile, KnownEvents
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.gathering import Place, gather
from jobctl.jobspec.launcher.report.event_log import EVENTS
from jobctl.jobspec.launcher.telling.words import id_of

# There is never a supervisor, so nobody else could have. The other words are those of earlier versions.
_BY_LAUNCHERS = re.compile(r"; the launchers decided$|; no supervisor was there$|^no supervisor is there: ")


class AllocationEvents(EventFile):
    """The events of this machine's history, to which `gather` adds those in the job's directory, each once."""

    def __init__(self, login: LoginNode, job: JobDir, look: Callable[[], SlurmLook]) -> None:
        super().__init__(job.events)
        self._login, self._job, self._look, self._read = login, job, look, 0

    def gather(self) -> None:
        """Add what the allocation and its launchers have written, as far as the login node answers."""
        with contextlib.suppress(HostError):
            look = self._look()
            began = as_moment(look.files.get(PurePosixPath("run/start.json"), {}).get("began"))
            if began is None:
                return
            self._add(began, look)
            reports: dict[Place, Json | None] = {("", node): report for node, report in look.reports()}
            gather(self._job, reports, lambda places: self._kept(places, _homes(look)), time.time(), _plain)

    def _add(self, began: float, look: SlurmLook) -> None:
        """Add what the coordinator has written, and what only Slurm tells of. Raises HostError."""
        before = self._read
        found = [*self._of_allocation(began), *of_slurm(began, look)]
        try:
            if found:
                KnownEvents(self._job.events).add(found)
        except OSError:  # a full disk: they are read once more
            self._read = before

    def new(self) -> list[dict[str, Any]]:
        """Return the events that were written here since the last call."""
        return [{**event, "message": _plain(event["message"])} for event in super().new()]

    def _of_allocation(self, began: float) -> Iterator[dict[str, Any]]:
        """Yield what the coordinator has written since it was read last. Raises HostError."""
        text = self._login.events(self._read)
        for line in text[: text.rfind(b"\n") + 1].splitlines(keepends=True):
            event, at = parse_object(line), self._read
            self._read += len(line)
            if event and is_moment(event.get("time")):
                yield {**_readable(event), "id": id_of(began, f"allocation {at}")}

    def _kept(self, places: Sequence[Place], homes: Mapping[str, str]) -> Mapping[Place, Json | None]:
        """Read the files of events in nodes' folders. Raises HostError."""
        return {place: _in_place(self._login.kept_events(place[1], EVENTS), homes) for place in places}


def _readable(event: Json) -> Json:
    """Return an event of the coordinator's file, where processes of the job can write, as this machine keeps events."""
    tail = {"tail": list(texts(event["tail"]))} if "tail" in event else {}
    return {**event, **{name: as_text(event.get(name)) or "" for name in ("event", "message")}, **tail}


def _plain(message: str) -> str:
    return _BY_LAUNCHERS.sub("", message)


def of_slurm(began: float, look: SlurmLook) -> Iterator[Json]:
    """Yield what only Slurm tells of: that a job does not start without a person, or has failed without a word.

    Such a job was killed, or its coordinator has lost its machine.
    """
    held = held_words(look.entry)
    if held is not None and look.entry is not None:
        ident = id_of(began, f"held {look.entry.job_id} {look.entry.reason}")
        yield {"time": look.now, "event": "waiting", "message": held, "lasting": True, "by": "slurm", "id": ident}
    if look.asked and not look.problem and look.result is None:
        phase, words = verdict(look)
        if phase == "failed":
            ident = id_of(began, f"end of {look.known_id}")
            yield {"time": look.now, "event": phase, "message": f"job failed: {words}", "by": "slurm", "id": ident}


def _homes(look: SlurmLook) -> dict[str, str]:
    """Return the machine of each node, by the name that the node has as a host."""
    told = look.allocation.get("nodes")
    places = told.items() if isinstance(told, dict) else ()
    named = {f"node-{node}": as_text(place.get("host")) for node, place in places if isinstance(place, dict)}
    return {name: host for name, host in named.items() if host}


def _in_place(data: Json | None, homes: Mapping[str, str]) -> Json | None:
    """Return what a launcher has kept, with machines in place of the names that nodes have as hosts."""
    if data is None or not isinstance(data.get("events"), list):
        return data
    events = []
    for event in (one for one in data["events"] if isinstance(one, dict)):
        changed: Json = {"host": homes.get(str(event["host"]), event["host"])} if "host" in event else {}
        if isinstance(event.get("hosts"), dict):
            changed["hosts"] = {node: homes.get(str(host), host) for node, host in event["hosts"].items()}
        events.append({**event, **changed})
    return {**data, "events": events}
