"""The events of a node, which its launchers keep in its folder until somebody collects them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.report.node_report import EventStamp
from jobctl.jobspec.launcher.system.files import read_json, write_json

if TYPE_CHECKING:
    from typing import List, Optional, Set, Tuple

    from jobctl.jobspec.launcher.system.files import Json
EVENTS = "events.json"  # in the folder of a node
MAX_EVENTS = 300  # events that are kept: of a few hundred bytes each, with the last lines of a log a few thousand


def key_of(event: Json) -> Optional[str]:
    """Return what is the same for one thing that happened, from all that tell of it; None for what may happen again.

    It is so within the time for which a job is up.
    """
    kind, number = event.get("event"), event.get("generation")
    if kind == "told":
        return "told %s" % event["mark"] if event.get("mark") else None
    if kind == "step" and event.get("step") == "generation":
        kind = "generation"
    if number is None:
        return None
    if kind == "failure" and event.get("alone"):  # the generation has gone on
        return None
    if kind in ("generation", "generation-begun", "failure", "failed", "succeeded"):
        return "%s %s" % (kind, number)
    about = {
        "node": (event.get("node"), event.get("state")),
        "moved": (event.get("node"), event.get("host")),
        "process-restarted": (event.get("node"), event.get("process_restarts")),
        "straggler": (event.get("node"),),
        "waiting": (event.get("reason"),),
    }.get(str(kind))
    if about is None or None in about or about[-1] == "lost":
        return None
    return " ".join(map(str, (kind, number, *about)))


class EventLog:
    """The events of one node, each once, at most MAX_EVENTS: the oldest ones go first, and `dropped` counts them.

    The file is replaced whole. `file` identifies it for those who have read it before.
    """

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, EVENTS)
        last = read_json(self.path) or {}
        events = last.get("events")
        self.events: List[Json] = [one for one in events if isinstance(one, dict)] if isinstance(events, list) else []
        self.file = str(last.get("file") or os.urandom(8).hex())
        dropped = last.get("dropped")
        self.dropped = dropped if isinstance(dropped, int) else 0
        self.known: Set[Tuple[object, Optional[str]]] = {(one.get("began"), key_of(one)) for one in self.events}
        self.written = True

    @property
    def stamp(self) -> EventStamp:
        """What changes with each event: the report has it, so that the file is read only then."""
        return EventStamp(self.file, self.dropped + len(self.events))

    def add(self, events: List[Json]) -> bool:
        """Keep those of `events` that are new; say whether there were any. What finds no room on the disk is tried again."""
        fresh = [one for one in events if (one["began"], key_of(one)) not in self.known]
        if not fresh and self.written:
            return False
        self.known |= {(one["began"], key_of(one)) for one in fresh}
        self.events += fresh
        self.dropped += max(0, len(self.events) - MAX_EVENTS)
        self.events = self.events[-MAX_EVENTS:]
        self.written = write_json(
            self.path, {"version": 1, "file": self.file, "dropped": self.dropped, "events": self.events}
        )
        return bool(fresh)
