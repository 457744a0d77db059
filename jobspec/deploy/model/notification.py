"""Notifications of a job, and the channels that they take: values."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from jobctl.jobspec.deploy.model.untrusted import Json, as_moment, as_number, as_text, texts
from jobctl.jobspec.launcher.telling.notification import Notification as Notification
from jobctl.jobspec.launcher.telling.webhook import DeliveryResult as DeliveryResult
from jobctl.jobspec.records import dataclass


def notification_from(data: Json) -> Notification | None:
    """Return the message of which an outbox has kept this, None if this is something else."""
    named = {key: as_text(data.get(key)) for key in ("id", "job", "run", "event", "text")}
    at = as_moment(data.get("at"))
    if at is None or not all(isinstance(value, str) for value in named.values()):
        return None
    nodes = data.get("nodes")
    return Notification(
        **{key: value or "" for key, value in named.items()},
        at=at,
        generation=as_number(data.get("generation")),
        nodes=tuple(node for node in nodes if isinstance(node, int)) if isinstance(nodes, list) else (),
        cost=as_moment(data.get("cost_seconds")),
        covers=texts(data.get("covers")),
    )


@dataclass(frozen=True, slots=True)
class Channel:
    """One way to tell people: what an item of `notify` says, with the values of its secrets.

    `key` names it without them. `how` has `url` and `format` (and `from_hosts` if launchers may have these), `argv` and
    `directory`, or `to`, `sender` and `smtp`. Never printed: it holds secrets.
    """

    key: str
    on: frozenset[str]
    kind: str
    how: dict[str, Any] = field(repr=False)

    @property
    def is_for_programs(self) -> bool:
        """Whether a program reads the messages, which can take more of them than a person."""
        return self.kind == "command" or self.how.get("format") == "json"

    def record(self) -> Json:
        """Return what the file of mode 0600 keeps of it."""
        return {"key": self.key, "on": sorted(self.on), "kind": self.kind, "how": self.how}

    @classmethod
    def from_record(cls, data: Json) -> Channel | None:
        """Return what `record` returned, None if this is something else."""
        key, kind, how = as_text(data.get("key")), as_text(data.get("kind")), data.get("how")
        if key is None or kind not in ("webhook", "command", "email") or not isinstance(how, dict):
            return None
        return cls(key, frozenset(texts(data.get("on"))), kind, how)
