"""Messages that are on their way: each is told once, or twice where the teller was killed in between. Pure.

The outbox knows up to where the event log was read, so reading on and keeping what was found is one step. A message
leaves it only after its channel has taken it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification, notification_from
from jobctl.jobspec.deploy.model.untrusted import Json, as_moment, as_number, as_text, objects, texts
from jobctl.jobspec.launcher.telling.news import Told
from jobctl.jobspec.launcher.telling.notification import mark_of
from jobctl.jobspec.launcher.telling.storm import (
    MINUTE,
    MOST_A_MINUTE,
    MOST_FOR_PROGRAMS,
    URGENT_EVENTS,
    allowed,
    summed_up,
)
from jobctl.jobspec.launcher.telling.telling import LONGEST_RETRY, longer
from jobctl.jobspec.notify.told import kept_told, told_from
from jobctl.jobspec.records import dataclass

MOST_MARKS = 500  # messages of launchers that are remembered


@dataclass(frozen=True, slots=True)
class Entry:
    """A message for one channel. One that was refused is tried again at `due`, after `pause` seconds."""

    channel: str
    message: Notification
    due: float = 0.0
    pause: float = 0.0

    def is_due(self, now: float) -> bool:
        """Say whether it may be tried."""
        return not _is_later(self.due, now)


def _is_later(due: float, now: float) -> bool:
    """Say whether `due` is still to come. A clock that was set back makes nobody wait."""
    return 0 < due - now <= LONGEST_RETRY + MINUTE


@dataclass
class ChannelState:
    """How a channel fares: when it is tried next, after which pause, and when it took messages."""

    due: float = 0.0
    pause: float = 0.0
    taken: list[float] = field(default_factory=list)
    holds: bool = False  # whether messages had to wait since too many had been sent
    problem: str | None = None  # why it did not take the last one

    def recent(self, now: float) -> list[float]:
        """Return when it took the messages that count."""
        return [at for at in self.taken if now - MINUTE < at <= now]


@dataclass
class Outbox:
    """The messages of one job that nobody has taken yet, and how far its event log was read (`offset`, in bytes)."""

    offset: int = 0
    told: Told = field(default_factory=Told)
    entries: list[Entry] = field(default_factory=list)
    lines: dict[str, ChannelState] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)  # of messages that launchers have sent: see `mark_of`

    def add(self, messages: Iterable[Notification], channels: Iterable[Channel]) -> None:
        """Put messages in, for each channel that wants such events."""
        ways = tuple(channels)
        for message in messages:
            wanted = [way.key for way in ways if message.event in way.on]
            self.entries += [Entry(key, message) for key in wanted if mark_of(message.id, key) not in self.marks]

    def launchers_told(self, marks: Iterable[str]) -> None:
        """Drop messages that launchers have sent, where nobody watched: those in the outbox, and those to come."""
        self.marks = [*self.marks, *marks][-MOST_MARKS:]
        self.entries = [one for one in self.entries if mark_of(one.message.id, one.channel) not in self.marks]

    def forget_others(self, keys: frozenset[str]) -> bool:
        """Drop what is for channels that the job has no longer; say whether there was anything."""
        kept = [entry for entry in self.entries if entry.channel in keys]
        changed = len(kept) < len(self.entries) or not self.lines.keys() <= keys
        self.entries, self.lines = kept, {key: line for key, line in self.lines.items() if key in keys}
        return changed

    def line(self, key: str) -> ChannelState:
        """Return how a channel fares."""
        return self.lines.setdefault(key, ChannelState())

    def due(self, channel: Channel, now: float) -> list[Entry]:
        """Return what may be sent through a channel now, in order; a storm becomes a summary first."""
        line = self.line(channel.key)
        if _is_later(line.due, now):
            return []
        mine = [entry for entry in self.entries if entry.channel == channel.key and entry.is_due(now)]
        room = (MOST_FOR_PROGRAMS if channel.is_for_programs else MOST_A_MINUTE) - len(line.recent(now))
        if line.holds and room > 0:
            mine = self._summed_up(mine)
            line.holds = False
        free, waits = allowed([entry.message for entry in mine], room)
        line.holds, ids = line.holds or waits, {one.id for one in free}
        return [entry for entry in mine if entry.message.id in ids]

    def _summed_up(self, mine: list[Entry]) -> list[Entry]:
        entries = {entry.message.id: entry for entry in mine}
        kept = [entries.get(one.id, Entry(mine[0].channel, one)) for one in summed_up([one.message for one in mine])]
        gone = {id(entry) for entry in mine}
        self.entries = [entry for entry in self.entries if id(entry) not in gone] + kept
        return kept

    def record_delivery(self, entry: Entry, delivery: DeliveryResult, now: float) -> bool:
        """Take note of what became of a message; say whether the channel may be given another one now."""
        line = self.line(entry.channel)
        line.problem = delivery.problem
        if delivery.done:
            self.entries = [other for other in self.entries if other is not entry]
            line.taken = [*line.recent(now), now]
            line.pause, line.due = 0.0, 0.0
            return True
        wait = min(delivery.wait or 0.0, LONGEST_RETRY)
        if delivery.refused:  # the next one may be better
            pause = longer(entry.pause)
            later = replace(entry, pause=pause, due=now + max(pause, wait))
            self.entries = [later if other is entry else other for other in self.entries]
            return True
        line.pause = longer(line.pause)
        line.due = now + max(line.pause, wait)
        return False

    def next_due(self, now: float) -> float | None:
        """Return in how many seconds something may be sent, None if nothing waits."""
        return min((self._wait(entry, now) for entry in self.entries), default=None)

    def _wait(self, entry: Entry, now: float) -> float:
        line = self.line(entry.channel)
        recent = line.recent(now)
        room = recent[0] + MINUTE if line.holds and recent and entry.message.event not in URGENT_EVENTS else now
        return max(0.0, room - now, *(due - now for due in (line.due, entry.due) if _is_later(due, now)))

    def to_json(self) -> Json:
        """Return it as JSON."""
        return {
            "offset": self.offset,
            "told": kept_told(self.told),
            "entries": [
                {"channel": one.channel, "due": one.due, "pause": one.pause, **one.message.kept()}
                for one in self.entries
            ],
            "lines": {
                key: {
                    "due": one.due,
                    "pause": one.pause,
                    "taken": one.taken,
                    "holds": one.holds,
                    "problem": one.problem,
                }
                for key, one in self.lines.items()
            },
            **({"marks": self.marks} if self.marks else {}),
        }

    @classmethod
    def from_json(cls, data: Json) -> Outbox:
        """Return what `to_json` returned; what cannot be read is left out."""
        told, lines = data.get("told"), data.get("lines")
        entries = [
            Entry(str(one["channel"]), message, as_moment(one.get("due")) or 0.0, as_moment(one.get("pause")) or 0.0)
            for one in objects(data.get("entries"))
            if "channel" in one and (message := notification_from(one)) is not None
        ]
        known = {str(key): _line(one) for key, one in lines.items()} if isinstance(lines, dict) else {}
        return cls(
            as_number(data.get("offset")) or 0,
            told_from(told) if isinstance(told, dict) else Told(),
            entries,
            known,
            list(texts(data.get("marks"))),
        )


def _line(data: object) -> ChannelState:
    if not isinstance(data, dict):
        return ChannelState()
    taken = data.get("taken")
    times = [at for at in map(as_moment, taken) if at is not None] if isinstance(taken, list) else []
    due, pause = as_moment(data.get("due")), as_moment(data.get("pause"))
    return ChannelState(due or 0.0, pause or 0.0, times, data.get("holds") is True, as_text(data.get("problem")))
