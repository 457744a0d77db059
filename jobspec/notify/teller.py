"""Reads the event log, keeps what people have to know in the outbox, and sends it.

Three steps that are safe to be killed between: read and keep (one file, replaced whole), send, take out. Only a death
between the last two sends a message twice, with the same `id`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from jobctl.jobspec.deploy.apply.clock import Clock
from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification
from jobctl.jobspec.deploy.model.untrusted import Json, as_text, objects
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import Locked, hold
from jobctl.jobspec.launcher.telling.news import News
from jobctl.jobspec.notify.outbox import Entry, Outbox
from jobctl.jobspec.notify.sending import Send, Sending

POLL_INTERVAL = 0.5  # seconds between two looks at the event log
LINGER = 600.0  # seconds for which the supervisor of a job that has ended tries to get rid of messages
COMMAND_LINGER = 5.0  # seconds for which a command does
_ENDING = 2.0  # seconds that a message on its way gets when its supervisor is ended
_LINGER_INTERVAL = 0.25  # seconds between two looks while lingering

_ROUND = 60.0  # seconds after which a turn begins to send nothing more: another process may wait for the lock


class Teller:
    """Tells people what happens to one job. Several may exist: one at a time is at work."""

    def __init__(self, job: JobDir, clock: Clock, send: Send) -> None:
        self.job, self.clock, self.send = job, clock, send
        self._sending = Sending()
        # Messages that were taken, and are in the outbox still: the disk is full.
        self._taken: set[tuple[str, str]] = set()

    def channels(self) -> tuple[str, tuple[Channel, ...]]:
        """Return the job's run, and its channels."""
        data: Json = read_json(self.job.channels) or {}
        found = (Channel.from_record(one) for one in objects(data.get("channels")))
        return as_text(data.get("run")) or "", tuple(channel for channel in found if channel is not None)

    def has_work(self) -> bool:
        """Say whether there may be something to tell: messages wait, or the event log has grown."""
        if not self.job.channels.exists():
            return False
        box = self.outbox()
        return bool(box.entries) or self._has_grown(box)

    def _has_grown(self, box: Outbox) -> bool:
        try:
            return self.job.events.stat().st_size != box.offset
        except FileNotFoundError:
            return False

    def tell(self) -> float | None:
        """Send what is due; return in how many seconds something else is, None if nothing waits.

        Raises Locked while another process does it.
        """
        with hold(self.job.outbox_lock, "notify", 0.0):
            return self.tell_locked()

    def tell_locked(self, deadline: float | None = None) -> float | None:
        """Do the same with the lock held; after `deadline` it sends nothing more, and leaves what is on its way."""
        run, channels = self.channels()
        if not channels:
            return None
        box, batches, began = self.outbox(), dict[str, deque[Entry]](), time.monotonic()
        if box.forget_others(frozenset(channel.key for channel in channels)):
            self._save(box)
        self._read(box, run, channels)
        while True:
            over = deadline is not None and self.clock.now() >= deadline
            for channel in channels if not over and time.monotonic() - began < _ROUND else ():
                self._send_next(box, channel, batches)
            if over or not self._sending:
                return box.next_due(self.clock.now())
            self._take_note(box, batches)
            self._read(box, run, channels)

    def outbox(self) -> Outbox:
        """Return what nobody has taken yet, as it was kept last."""
        return Outbox.from_json(read_json(self.job.outbox) or {})

    def _save(self, box: Outbox) -> None:
        write_json(self.job.outbox, box.to_json(), 0o600, sync=True)

    def _read(self, box: Outbox, run: str, channels: tuple[Channel, ...]) -> None:
        """Put into the outbox what has happened since it was written last."""
        if not self._has_grown(box):
            return
        size = self.job.events.stat().st_size
        lines, offset = events.read(self.job.events, box.offset if box.offset <= size else 0)
        if offset == box.offset:  # a line that is not whole
            return
        news = News(self.job.name, run, box.told)
        news.read(lines)
        box.launchers_told(mark for line in lines if line["event"] == "told" and (mark := as_text(line.get("mark"))))
        box.add(news.found, channels)
        box.told, box.offset = news.told, offset
        self._save(box)

    def _send_next(self, box: Outbox, channel: Channel, batches: dict[str, deque[Entry]]) -> None:
        """Send the next message that is due through a channel, unless one is being sent."""
        if self._sending.is_busy(channel):
            return
        batch = batches.setdefault(channel.key, deque())
        if not batch:
            before = list(box.entries)
            batch += box.due(channel, self.clock.now())
            if box.entries != before:  # a summary, whose id has to be the same if it is sent twice
                self._save(box)
        if batch:
            message = batch.popleft().message
            taken = (channel.key, message.id) in self._taken
            self._sending.start(_is_taken if taken else self.send, channel, message)

    def _take_note(self, box: Outbox, batches: dict[str, deque[Entry]]) -> None:
        """Wait a moment for a message that is being sent, and take note of what became of it."""
        result = self._sending.finished(POLL_INTERVAL)
        if result is None:
            return
        key, ident, delivery = result
        entry = next((one for one in box.entries if (one.channel, one.message.id) == (key, ident)), None)
        if entry is not None and not self._note(box, entry, delivery):
            batches.pop(key, None)

    def _note(self, box: Outbox, entry: Entry, delivery: DeliveryResult) -> bool:
        """Take note of what became of a message; say whether its channel may be given another one now."""
        before, this = box.line(entry.channel).problem, (entry.channel, entry.message.id)
        if delivery.done:
            self._taken.add(this)
        now = self.clock.now()
        goes_on = box.record_delivery(entry, delivery, now)
        self._save(box)
        self._taken.discard(this)
        if delivery.problem is not None and delivery.problem != before:
            message = f"cannot tell by {entry.channel}: {delivery.problem}; tries again"
            events.record(self.job.events, now, "notify-failed", message, channel=entry.channel)
        return goes_on

    def linger(self, seconds: float) -> list[Notification]:
        """Send what waits, for at most so long; return what nobody has taken. Another process may be at work."""
        deadline = self.clock.now() + seconds
        while self.has_work() and self.clock.now() < deadline:
            try:
                with hold(self.job.outbox_lock, "notify", 0.0):  # so that `down` finds and ends this process
                    while self.job.channels.exists() and self.clock.now() < deadline:
                        if self.tell_locked(deadline) is None and not self._sending:
                            return []
                        self.clock.sleep(_LINGER_INTERVAL)
            except Locked:
                self.clock.sleep(_LINGER_INTERVAL)
        return [entry.message for entry in self.outbox().entries] if self.job.channels.exists() else []


def _is_taken(channel: Channel, message: Notification) -> DeliveryResult:
    """Send nothing: it was taken before, which could not be written."""
    return DeliveryResult()


@contextmanager
def telling(teller: Teller) -> Iterator[None]:
    """Tell people from a thread of its own, so that a slow webhook delays no decision."""
    over = threading.Event()
    thread = threading.Thread(target=_loop, args=(teller, over), name="notify", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_ENDING)


def _loop(teller: Teller, over: threading.Event) -> None:
    while not over.is_set():
        wait = _turn(teller)
        over.wait(POLL_INTERVAL if wait is None else min(POLL_INTERVAL, max(_LINGER_INTERVAL, wait)))


def _turn(teller: Teller) -> float | None:
    try:
        return teller.tell() if teller.has_work() else None
    except (Locked, OSError):  # another process sends; or a full disk, on which nothing can be marked as told
        return None
