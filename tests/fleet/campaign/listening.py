"""A webhook for a campaign, and whether it was told of all that happened to the job, and how soon."""

from __future__ import annotations

import collections
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jobctl.jobspec.deploy.model.notification import Notification
from jobctl.jobspec.launcher.telling.news import News
from jobctl.jobspec.report.runs import Event, events_of
from tests.tools.webhook import Webhook

VARIABLE = "CAMPAIGN_HOOK"
EVERY = "failed, recovered, host-lost, hang, waiting, straggler, succeeded"
SPEC = f"notify: [{{{{on: [{EVERY}], webhook: {VARIABLE}}}}}]\n"
LATE = 2.0  # seconds within which a message is to come
SLACK = 0.01  # seconds: messages have their times in milliseconds


@dataclass(frozen=True)
class Receipt:
    """A message, and when it came, in seconds since the epoch."""

    at: float
    body: Mapping[str, Any]


class Listener(Webhook):
    """A webhook of format `json`. `interrupt` is called once, before the next answer."""

    def __init__(self) -> None:
        super().__init__()
        self.receipts: list[Receipt] = []
        self.interrupt: Callable[[], None] | None = None

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Keep a message, with the time."""
        self.receipts.append(Receipt(time.time(), json.loads(body)))
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            interrupt()


@dataclass(frozen=True)
class Hearing:
    """What was heard of a job: messages that came `twice`, the ids of those that came more `often`, and what was `lost`."""

    failures: int
    messages: int
    twice: int
    often: tuple[str, ...]
    lost: tuple[str, ...]
    seconds: tuple[
        float, ...
    ]  # from each event to its first message, but those in which nobody could tell; the shortest first
    unwatched: int  # messages about what happened while nobody watched
    late: tuple[str, ...]  # what took longer than LATE

    def within(self, share: float) -> float:
        """Return the seconds within which so many of the messages came."""
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))] if self.seconds else 0.0

    @property
    def line(self) -> str:
        """What a campaign prints."""
        times = f"p50 {self.within(0.5):.1f} s, p95 {self.within(0.95):.1f} s, longest {self.within(1):.1f} s"
        return (
            f"{self.failures:4}  failures, {self.messages} messages: {times} after the event (of {self.unwatched} after a "
            f"supervisor was there again); {self.twice} came twice, {len(self.often)} more often, {len(self.lost)} lost"
            + "".join(f"\n      {one}" for one in self.late)
        )


def heard(log: Path, receipts: Sequence[Receipt], unwatched: Sequence[tuple[float, float]] = ()) -> Hearing:
    """Compare what a webhook got with the job's events.

    Which messages there must be follows from the log, read at once; beside them each failure has to be in one, see
    `untold`. `unwatched`: from when to when nobody could tell, without end until a supervisor starts.
    """
    story = events_of(json.loads(line) for line in log.read_text().splitlines())
    times = collections.Counter(one.body["id"] for one in receipts)
    first: dict[str, Receipt] = {}
    for one in receipts:
        for ident in (one.body["id"], *one.body.get("covers", ())):
            first.setdefault(ident, one)
    # A message has the run of the time when it was made: a job that was down has another one afterwards.
    runs = {str(one.body["run"]) for one in receipts}
    starts = [event.at for event in story if event.kind == "supervisor-started"]
    away = [
        (begin, next((at for at in starts if at > begin), end) if end == math.inf else end) for begin, end in unwatched
    ]
    lost, seconds, late, alone = [], [], [], 0
    for same in zip(*(_messages(one.body["job"], run, story) for one in receipts[:1] for run in runs), strict=True):
        came = next((first[message.id] for message in same if message.id in first), None)
        if came is None:
            lost.append(f"{same[0].event}: {same[0].text}")
        else:
            alone += any(begin <= same[0].at <= end for begin, end in away)
            seconds.append(watched(same[0].at, came.at, away))
            if seconds[-1] > LATE:
                late.append(f"{seconds[-1]:.1f} s late: {same[0].event}: {same[0].text}")
    failures = [event for event in story if event.kind == "failure"]
    lost += [f"failure: {one.message}" for one in untold(story, receipts)]
    often = tuple(ident for ident, count in times.items() if count > 2)
    twice = sum(1 for count in times.values() if count == 2)
    return Hearing(len(failures), len(times), twice, often, tuple(lost), tuple(sorted(seconds)), alone, tuple(late))


def watched(begin: float, end: float, away: Iterable[tuple[float, float]]) -> float:
    """Return for how many seconds between two moments somebody could tell; the times in `away` may overlap."""
    seconds, until = end - begin, begin
    for start, stop in sorted(away):
        start, stop = max(start, until), min(stop, end)
        seconds -= max(0.0, stop - start)
        until = max(until, stop)
    return seconds


def _messages(job: str, run: str, story: Sequence[Event]) -> list[Notification]:
    news = News(job, run)
    news.read({"time": one.at, "event": one.kind, "message": one.message, **one.details} for one in story)
    return news.found


def untold(story: Sequence[Event], receipts: Iterable[Receipt]) -> list[Event]:
    """Return the failures of a log that no message names, but for those after which somebody stopped the job.

    That is found without jobctl's own rules: a message says what has failed, and the failure is in the time that it counts.
    """
    bodies = [one.body for one in receipts]
    found = []
    for number, failure in enumerate(story):
        again = [failure, *_again(failure, story[number + 1 :])] if failure.kind == "failure" else []
        if again and not any(_names(body, one) for body in bodies for one in again):
            found += [] if _is_stopped(failure, story[number + 1 :]) else [failure]
    return found


def _names(body: Mapping[str, Any], failure: Event) -> bool:
    """Say whether a message is about a failure: its words, in the time that the message counts."""
    at = datetime.fromisoformat(body["at"]).timestamp()
    ends = body["event"] in ("failed", "succeeded")  # they count no time
    begun = -math.inf if ends else at - (body["cost_seconds"] or 0.0)
    words = failure.message in body["text"] or "more failure" in body["text"]
    return words and begun - SLACK <= failure.at <= at + SLACK


def _again(failure: Event, later: Iterable[Event]) -> Iterator[Event]:
    """Yield other records of a failure, by supervisors who could not know of the first: in a generation, of a node."""
    for event in later:
        if event.kind == "generation-begun":
            return
        same = all(event.details.get(key) == failure.details.get(key) for key in ("generation", "node", "kind"))
        if event.kind == "failure" and same:
            yield event


def _is_stopped(failure: Event, later: Iterable[Event]) -> bool:
    """Say whether a command ended the job before it ran again."""
    for event in later:
        if event.kind in ("stopped", "down"):
            return True
        if event.kind == "generation-begun":
            return False
    return False
