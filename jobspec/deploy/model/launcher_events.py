"""What launchers have kept of what happened to a job, in the form in which this machine keeps events. Pure.

Several launchers tell of the same thing, and so may a supervisor: `key_of` says what is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jobctl.jobspec.deploy.model.untrusted import (
    Json,
    as_code,
    as_moment,
    as_number,
    as_text,
    is_moment,
    is_number,
    objects,
    texts,
)
from jobctl.jobspec.launcher.report.event_log import key_of
from jobctl.jobspec.launcher.telling.words import EVENT_WORDS, id_of
from jobctl.jobspec.records import dataclass

LATE = 60.0  # seconds after which nobody waits for what other nodes tell of how a generation began


@dataclass(frozen=True, slots=True)
class KeptEvents:
    """The events in one node's folder: which file it is, how many there were, and how many of these are gone."""

    file: str
    count: int
    dropped: int
    events: tuple[Json, ...]


def stamp_of(report: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return what a launcher's report says of its events: file and count, None if it has none."""
    said = report.get("events")
    file, count = (as_text(said.get("file")), as_number(said.get("count"))) if isinstance(said, dict) else (None, None)
    return None if not file or count is None else (file, count)


def kept_events(data: Json | None) -> KeptEvents | None:
    """Return what is in a node's file of events, None if it is no such file; events that cannot be read are left out."""
    file = as_text((data or {}).get("file"))
    if data is None or not file:
        return None
    told = objects(data.get("events"))
    dropped = as_number(data.get("dropped")) or 0
    return KeptEvents(file, dropped + len(told), dropped, tuple(filter(None, map(_event, told))))


def _numbers(value: object) -> list[int] | None:
    return [one for one in value if is_number(one)] if isinstance(value, list) else None


def _hosts(value: object) -> dict[str, str] | None:
    return {str(as_text(node)): str(as_text(host)) for node, host in value.items()} if isinstance(value, dict) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


_FIELDS: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(("generation", "node", "rank", "progress", "port", "process_restarts"), as_number),
    **dict.fromkeys(
        ("host", "kind", "log", "reason", "state", "by", "cause", "from", "cold_because", "mark", "what", "channel"),
        as_text,
    ),
    **dict.fromkeys(("ranks", "members", "nodes"), _numbers),
    **dict.fromkeys(("standby", "lasting"), _flag),
    **dict.fromkeys(("seconds", "median"), as_moment),
    "exit_code": as_code,
    "hosts": _hosts,
    "tail": lambda value: list(texts(value)),
}


def _event(said: Json) -> Json | None:
    """Return an event as this machine keeps it, None for what this version does not know."""
    kind, at, began = as_text(said.get("event")), said.get("time"), as_moment(said.get("began"))
    known = {name: read(said[name]) for name, read in _FIELDS.items() if name in said}
    words = EVENT_WORDS.get(kind or "")
    key = key_of({**known, "event": kind})
    if words is None or key is None or began is None or not is_moment(at):
        return None
    return {"time": at, "event": kind, "message": words(known), "id": id_of(began, key), **known}


def began_of(event: Mapping[str, Any]) -> float | None:
    """Return when the job was brought up that an event with an id is of."""
    began, _, _ = str(event.get("id", "")).partition(" ")
    try:
        return float(began)
    except ValueError:
        return None


def joined(told: Iterable[Json], now: float) -> tuple[list[Json], bool]:
    """Return what several nodes tell, each thing once and in order of time; and whether that is all that they tell.

    How a generation was started is known once all of its nodes have said so: cold, if one of them was. Until then it is
    left for the next look, unless another generation has begun meanwhile, or a minute has passed.
    """
    groups: dict[str, list[Json]] = {}
    for event in told:
        groups.setdefault(event["id"], []).append(event)
    last: dict[float | None, int] = {}
    for event in (event for group in groups.values() for event in group if event["event"] == "generation"):
        last[began_of(event)] = max(last.get(began_of(event), 0), event["generation"])
    found, whole = [], True
    for group in groups.values():
        if group[0]["event"] != "generation-begun":
            found.append(max(group, key=lambda one: (len(one.get("tail") or ()), -one["time"])))
        elif _is_known(group, last.get(began_of(group[0]), 0), now):
            found.append(_way(group))
        else:
            whole = False
    return sorted(found, key=lambda event: event["time"]), whole


def _is_known(group: Sequence[Json], last: int, now: float) -> bool:
    members = {node for event in group for node in event.get("members") or ()}
    every = members <= {event.get("node") for event in group}
    return every or last > group[0]["generation"] or now - max(event["time"] for event in group) > LATE


def _way(group: Sequence[Json]) -> Json:
    """Return the event of a generation from those of its nodes."""
    event = next((event for event in group if event.get("standby") is not True), group[0])
    own = ("node", "host", "members", "progress", "ranks")
    return {name: value for name, value in event.items() if name not in own}


def told_of_dropped(kept: KeptEvents, node: int, host: str, known: Callable[[Json], bool]) -> Json | None:
    """Return the event that a node's launchers have dropped events which nobody has collected, None if they have not."""
    if not kept.dropped or not kept.events or known(kept.events[0]):
        return None
    message = f"node {node} on {host} has kept its last events only: {kept.dropped} older ones are gone"
    at = kept.events[0]["time"]
    id_ = id_of(began_of(kept.events[0]) or 0.0, f"dropped {kept.file} {kept.dropped}")
    return {"time": at, "event": "events-dropped", "message": message, "id": id_, "node": node, "count": kept.dropped}
