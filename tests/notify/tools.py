"""A job's files without a job, a clock that is set by hand, and a webhook that takes notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir

ALL = frozenset({"failed", "recovered", "host-lost", "hang", "waiting", "straggler", "succeeded"})
URL = "https://hooks.example.com/services/T0/B0/very-secret"
HOOK = Channel("webhook HOOK (json)", ALL, "webhook", {"url": URL, "format": "json"})
CHAT = Channel("webhook CHAT (slack)", ALL, "webhook", {"url": URL, "format": "slack"})


class HandClock:
    """A clock that only moves when somebody sleeps, or the test says so."""

    def __init__(self, at: float = 1_000_000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class Hook:
    """A webhook that takes everything, unless `answers` says otherwise."""

    got: list[Notification] = field(default_factory=list)
    answers: Callable[[Channel, Notification], DeliveryResult] = lambda channel, message: DeliveryResult()

    def __call__(self, channel: Channel, message: Notification) -> DeliveryResult:
        delivery = self.answers(channel, message)
        if delivery.done:
            self.got.append(message)
        return delivery

    @property
    def told(self) -> list[str]:
        return [message.event for message in self.got]


def job_in(path: Path) -> JobDir:
    job = JobDir(path / "jobs" / "demo")
    job.create()
    return job


def happens(job: JobDir, at: float, kind: str, message: str, /, **details: Any) -> None:
    events.record(job.events, at, kind, message, **details)


def line(at: float, kind: str, message: str, /, **details: Any) -> dict[str, Any]:
    return {"time": at, "event": kind, "message": message, **details}
