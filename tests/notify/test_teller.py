"""Nothing is lost, and nothing told more than twice, wherever the process that tells is killed."""

from __future__ import annotations

import json
import queue
import random
import stat
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.channels.send import send
from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import Locked, hold
from jobctl.jobspec.launcher.telling.news import News
from jobctl.jobspec.launcher.telling.notification import mark_of
from jobctl.jobspec.launcher.telling.telling import MOST_A_MINUTE, readable
from jobctl.jobspec.notify import teller as module
from jobctl.jobspec.notify.channels import keep_channels
from jobctl.jobspec.notify.outbox import Outbox
from jobctl.jobspec.notify.sending import Sending
from jobctl.jobspec.notify.teller import Teller
from tests.tools.waiting import PATIENCE, PROMPT

from .tools import CHAT, HOOK, URL, HandClock, Hook, happens, job_in


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


class Killed(BaseException):
    """SIGKILL: nothing after it happens."""


class Mortal(Teller):
    """A teller that is killed at one of the points between which it writes, sends and marks."""

    def __init__(self, job: JobDir, clock: HandClock, hook: Hook, dies: Callable[[], bool]) -> None:
        super().__init__(job, clock, hook)
        self.dies, self.hook = dies, hook
        self.send = self._send
        self.unmarked = False  # whether a message was sent, and is not marked as told

    def _point(self) -> None:
        if self.dies():
            raise Killed

    def _save(self, box: Outbox) -> None:
        self._point()
        super()._save(box)
        self.unmarked = False
        self._point()

    def _send(self, channel: Channel, message: Notification) -> DeliveryResult:
        self._point()
        delivery = self.hook(channel, message)
        self.unmarked = delivery.done
        self._point()
        return delivery


def play(path: Path, seed: int, dies: Callable[[], bool], hook: Hook, failures: int = 10) -> tuple[list[str], int]:
    """Play failures; return the ids that have to be told, and how often a teller died with a message just sent.

    A new supervisor begins after each kill, and reads on.
    """
    chance = random.Random(seed)
    job, clock, deaths = job_in(path / f"{seed}"), HandClock(), 0
    keep_channels(job, "demo-1", (HOOK,))
    teller = Mortal(job, clock, hook, dies)
    for number in range(1, failures + 1):
        kind = chance.choice(["process", "hang", "host"])
        happens(job, clock.at, "failure", f"node 0 fails, {number}", generation=number, node=0, kind=kind)
        happens(job, clock.at + 1, "generation", "begins", generation=number + 1, cause="x", by="supervisor")
        happens(job, clock.at + 2, "generation-begun", "cold", generation=number + 1)
        clock.sleep(20.0)
        for _ in range(chance.randint(1, 3)):
            try:
                teller.tell()
            except Killed:
                deaths += teller.unmarked
                teller = Mortal(job, clock, hook, dies)
    teller = Teller(job, clock, hook)
    while (wait := teller.tell()) is not None:
        clock.sleep(max(wait, 0.1))
    return expected(job), deaths


def expected(job: JobDir) -> list[str]:
    """Return the ids of all that has to be told of a log."""
    news = module.News(job.name, "demo-1")
    news.read(events.read(job.events)[0])
    return [message.id for message in news.found]


def never() -> bool:
    return False


def test_without_a_kill_each_is_told_once(tmp_path: Path) -> None:
    hook = Hook()
    wanted, _ = play(tmp_path, 0, never, hook)
    assert len(wanted) > 10
    assert [message.id for message in hook.got] == wanted


def test_a_kill_at_any_point_loses_nothing_and_repeats_one_at_most(tmp_path: Path) -> None:
    points, repeated = 0, 0
    while True:
        points += 1
        left = [points]

        def dies(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] == 0

        hook = Hook()
        wanted, deaths = play(tmp_path / str(points), 1, dies, hook, failures=4)
        counts = Counter(message.id for message in hook.got)
        assert set(counts) == set(wanted), points
        assert sum(counts.values()) - len(wanted) == deaths <= 1, points
        repeated += deaths
        if left[0] > 0:  # no point was left to die at
            break
    assert points > 25
    assert repeated == 2 * len(wanted)  # each was sent, and its mark not begun, or not written


@pytest.mark.parametrize("seed", range(100))
def test_many_kills_and_a_webhook_that_fails_at_times(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [
        DeliveryResult(),
        DeliveryResult(),
        DeliveryResult("no route"),
        DeliveryResult("400", refused=True),
        DeliveryResult("429", wait=20.0),
    ]
    hook = Hook(answers=lambda channel, message: chance.choice(kinds))
    wanted, deaths = play(tmp_path, seed, lambda: chance.random() < 0.05, hook)
    counts = Counter(message.id for message in hook.got)
    assert set(counts) == set(wanted)
    assert sum(counts.values()) - len(wanted) <= deaths


def test_a_summary_is_the_same_message_in_a_repeat(tmp_path: Path) -> None:
    job, clock, hook = job_in(tmp_path), HandClock(), Hook()
    keep_channels(job, "demo-1", (CHAT,))
    for number in range(MOST_A_MINUTE + 5):
        happens(job, clock.at, "straggler", f"node {number} is slow", node=number)
    wait = Teller(job, clock, hook).tell()
    assert wait is not None
    clock.sleep(wait)
    mortal = Mortal(job, clock, hook, never)
    mortal.dies = lambda: len(hook.got) > MOST_A_MINUTE
    with pytest.raises(Killed):
        mortal.tell()
    assert Teller(job, clock, hook).tell() is None
    first, second = hook.got[MOST_A_MINUTE:]
    assert first == second
    assert (first.event, len(first.covers)) == ("summary", 5)


def test_a_full_disk_repeats_nothing_while_the_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, hook = job_in(tmp_path), Hook()
    keep_channels(job, "demo-1", (HOOK,))
    teller = Teller(job, HandClock(), hook)
    happens(job, 5.0, "failed", "job failed")
    full = [False, True, True]
    save = Teller._save

    def no_room(self: Teller, box: Outbox) -> None:
        if full and full.pop(0):
            raise OSError(28, "No space left on device")
        save(self, box)

    monkeypatch.setattr(Teller, "_save", no_room)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            teller.tell()
    assert teller.tell() is None
    assert hook.told == ["failed"]


def test_a_supervisor_tells_only_what_launchers_have_not(tmp_path: Path) -> None:
    """It gives the same ids to the same events, whoever has recorded them, and when."""
    job, hook = job_in(tmp_path), Hook()
    keep_channels(job, "demo-1", (HOOK,))
    kept = [
        {"event": "failure", "time": 20.0, "began": 5.0, "generation": 1, "node": 1, "kind": "hang", "reason": "hangs"},
        {"event": "generation-begun", "time": 24.0, "began": 5.0, "generation": 2, "standby": True},
    ]
    by_launchers = News("demo", "demo-1", by_launchers=True)
    by_launchers.read(readable(kept))
    hang, recovered = by_launchers.found
    happens(job, 20.0, "failure", "node 1: hangs; the launchers decided", **_about(kept[0], "failure 1"))
    happens(job, 25.0, "told", "told", mark=mark_of(recovered.id, HOOK.key), id="5.0 told x")
    happens(job, 24.5, "generation-begun", "generation 2 was started", **_about(kept[1], "generation-begun 2"))
    Teller(job, HandClock(), hook).tell()
    assert [(one.event, one.id) for one in hook.got] == [("hang", hang.id)]


def _about(event: dict[str, Any], key: str) -> dict[str, Any]:
    details = {name: value for name, value in event.items() if name not in ("event", "time", "began", "reason")}
    return {**details, "id": f"5.0 {key}"}


def test_nobody_is_told_of_what_happened_before_they_asked(tmp_path: Path) -> None:
    job, hook = job_in(tmp_path), Hook()
    happens(job, 5.0, "failed", "job failed")
    keep_channels(job, "demo-1", (HOOK,))
    assert not Teller(job, HandClock(), hook).has_work()
    happens(job, 6.0, "generation", "begins", generation=2)
    happens(job, 7.0, "succeeded", "job succeeded")
    keep_channels(job, "demo-1", (replace(HOOK, on=frozenset({"succeeded"})),))  # `up` again, before it is told
    assert Teller(job, HandClock(), hook).tell() is None
    assert hook.told == ["succeeded"]


def test_messages_for_a_channel_that_is_gone_are_dropped(tmp_path: Path) -> None:
    job, hook, clock = job_in(tmp_path), Hook(answers=lambda channel, message: DeliveryResult("down")), HandClock()
    keep_channels(job, "demo-1", (HOOK,))
    happens(job, 5.0, "failed", "job failed")
    assert Teller(job, clock, hook).tell() is not None
    keep_channels(job, "demo-1", (CHAT,))
    assert Teller(job, clock, hook).tell() is None
    keep_channels(job, "demo-1", ())
    assert not job.outbox.exists()


def test_one_process_at_a_time_tells(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    keep_channels(job, "demo-1", (HOOK,))
    happens(job, 5.0, "failed", "job failed")
    with hold(job.outbox_lock, "notify", 0.0), pytest.raises(Locked):
        Teller(job, HandClock(), Hook()).tell()


def test_who_lingers_gives_up_in_time_and_says_what_is_left(tmp_path: Path) -> None:
    job, clock = job_in(tmp_path), HandClock()
    keep_channels(job, "demo-1", (HOOK,))
    happens(job, 5.0, "failed", "job failed")
    deaf = Hook(answers=lambda channel, message: DeliveryResult("no route"))
    left = Teller(job, clock, deaf).linger(60.0)
    assert [message.event for message in left] == ["failed"]
    assert clock.at == pytest.approx(1_000_060.0, abs=1.0)
    hook = Hook()
    assert Teller(job, clock, hook).linger(60.0) == []
    assert hook.told == ["failed"]


def test_who_lingers_waits_for_no_message_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook may take 20 seconds, a command a minute. Nothing more is begun then, either."""
    job, clock, over, began = job_in(tmp_path), HandClock(), threading.Event(), list[str]()

    def send(channel: Channel, message: Notification) -> DeliveryResult:
        began.append(message.text)
        over.wait(PATIENCE)
        return DeliveryResult()

    def finished(sending: Sending, seconds: float) -> None:
        clock.sleep(seconds)
        assert clock.at < 1_000_006.0, "it waits on"

    monkeypatch.setattr(Sending, "finished", finished)
    keep_channels(job, "demo-1", (HOOK,))
    happens(job, 5.0, "straggler", "first", node=1)
    happens(job, 6.0, "straggler", "second", node=2)
    try:
        left = Teller(job, clock, send).linger(5.0)
    finally:
        over.set()
    assert ([message.text for message in left], began) == (["first", "second"], ["first"])


def test_a_slow_channel_delays_no_other(tmp_path: Path) -> None:
    """What happens while it is being told goes to the others at once, in order."""
    job, clock, told, over = job_in(tmp_path), HandClock(), queue.Queue[str](), threading.Event()
    slow = replace(HOOK, key="slow", kind="command")

    def send(channel: Channel, message: Notification) -> DeliveryResult:
        if channel.key == "slow":
            assert over.wait(PATIENCE)
        else:
            told.put(message.text)
        return DeliveryResult()

    keep_channels(job, "demo-1", (slow, HOOK, CHAT))
    happens(job, 5.0, "straggler", "first", node=1)
    with ThreadPoolExecutor(1) as pool:
        turn = pool.submit(Teller(job, clock, send).tell)
        try:
            assert [told.get(timeout=PROMPT) for _ in range(2)] == ["first"] * 2
            happens(job, 6.0, "straggler", "second", node=2)
            assert [told.get(timeout=PROMPT) for _ in range(2)] == ["second"] * 2
            assert not turn.done()
        finally:
            over.set()
        assert turn.result(PROMPT) is None


@pytest.mark.parametrize("name", ["notify-send", "notify-channel"])
def test_a_machine_that_starts_no_thread_for_a_moment_loses_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ulimit -u` of a login node: what tells people would end, and nobody would hear of anything before the job's end."""
    job, clock, start, full = job_in(tmp_path), HandClock(), threading.Thread.start, [True]
    out = tmp_path / "told"
    way = replace(HOOK, kind="command", how={"argv": ["sh", "-c", f"cat > {out}"], "directory": "/"})

    def started(thread: threading.Thread) -> None:
        if thread.name == name and full and full.pop():
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    keep_channels(job, "demo-1", (way,))
    happens(job, 5.0, "failed", "job failed")
    teller = Teller(job, clock, send)
    assert teller.tell() == 1.0
    assert not out.exists()
    clock.sleep(1.0)
    assert teller.tell() is None
    assert json.loads(out.read_text())["event"] == "failed"
    (problem,) = (event["message"] for event in events.read(job.events)[0] if event["event"] == "notify-failed")
    assert "cannot start another thread; tries again" in problem


def test_a_teller_that_cannot_write_sends_nothing_twice_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message is on its way still when another one cannot be marked as told."""
    job, over, got = job_in(tmp_path), threading.Event(), list[str]()
    slow = replace(HOOK, key="slow", kind="command")

    def send(channel: Channel, message: Notification) -> DeliveryResult:
        got.append(channel.key)
        if channel.key == "slow":
            assert over.wait(PATIENCE)
        return DeliveryResult()

    keep_channels(job, "demo-1", (slow, HOOK))
    happens(job, 5.0, "failed", "job failed")
    teller = Teller(job, HandClock(), send)
    save, full = Teller._save, [False, True]

    def no_room(self: Teller, box: Outbox) -> None:
        if full and full.pop(0):
            raise OSError(28, "No space left on device")
        save(self, box)

    monkeypatch.setattr(Teller, "_save", no_room)
    with pytest.raises(OSError, match="No space"):
        teller.tell()
    over.set()
    assert teller.tell() is None
    assert sorted(got) == ["slow", HOOK.key]


def test_a_problem_is_an_event_once_and_no_secret_is_in_it(tmp_path: Path) -> None:
    job, clock = job_in(tmp_path), HandClock()
    keep_channels(job, "demo-1", (HOOK,))
    happens(job, 5.0, "failed", "job failed")
    Teller(job, clock, Hook(answers=lambda channel, message: DeliveryResult("it answered 404 Not Found"))).linger(20.0)
    problems = [event for event in events.read(job.events)[0] if event["event"] == "notify-failed"]
    assert [event["message"] for event in problems] == [
        "cannot tell by webhook HOOK (json): it answered 404 Not Found; tries again"
    ]
    holders = [path for path in job.root.iterdir() if URL in path.read_text()]
    assert holders == [job.channels]
    assert stat.S_IMODE(job.channels.stat().st_mode) == 0o600
    assert URL not in repr(Teller(job, clock, Hook()).channels())


def test_a_damaged_outbox_stops_nobody(tmp_path: Path) -> None:
    job, hook = job_in(tmp_path), Hook()
    keep_channels(job, "demo-1", (HOOK,))
    job.outbox.write_text('{"offset": 1e9, "entries": {}}')
    happens(job, 5.0, "failed", "job failed")
    assert Teller(job, HandClock(), hook).tell() is None
    assert hook.told == ["failed"]
    assert json.loads(job.outbox.read_text())["entries"] == []
