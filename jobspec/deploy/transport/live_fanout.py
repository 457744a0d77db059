"""The same question to many hosts again and again, for somebody who looks on: a host that is silent delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from jobctl.jobspec.deploy.model.errors import UNHEARD, DeployError, HostError
from jobctl.jobspec.deploy.transport.fanout import MAX_PARALLEL, H, Outcome, T
from jobctl.jobspec.records import dataclass

FIRST_ANSWER_TIMEOUT = 5.0  # seconds that the first answer of all may take
SILENCE_TIMEOUT = 2.0  # seconds without any answer, after which a round ends without the hosts that are missing
SLOT_TIMEOUT = 1.0  # seconds in which no task ends, after which others begin beside those that run
STALE = 5.0  # seconds for which the last answer of a host counts while the next one is under way


@dataclass
class _Line:
    """What is known of one host. `since` is when it answered last, or was asked first, in seconds since the epoch."""

    since: float
    busy: bool = False
    given_up: bool = False  # a round has ended without it
    heard: float = float("-inf")  # when it answered last, by the clock of rounds
    value: Any = None
    problem: Exception | None = None

    @property
    def answers(self) -> bool:
        """Whether it answered the last time."""
        return self.problem is None and self.heard > float("-inf")

    @property
    def unheard(self) -> bool:
        """Whether it did not answer when it was asked last."""
        return isinstance(self.problem, HostError) and self.problem.code in UNHEARD


class _Slots:
    """Lets MAX_PARALLEL tasks run at a time: if more log in at once, all become slow.

    If no task ends for SLOT_TIMEOUT, those that run do not count any longer: they wait for hosts that are silent.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running, self._batch = 0, 0
        self._moved = time.monotonic()  # when a task began or ended, last

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot during the `with` block, which begins once there is one."""
        with self._changed:
            while self._running >= MAX_PARALLEL and (left := self._moved + SLOT_TIMEOUT - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._running >= MAX_PARALLEL:
                self._running, self._batch = 0, self._batch + 1
                self._changed.notify_all()
            self._running += 1
            self._moved, batch = time.monotonic(), self._batch
        try:
            yield
        finally:
            with self._changed:
                self._moved = time.monotonic()
                if batch == self._batch:
                    self._running -= 1
                    self._changed.notify()


class LiveFanOut:
    """Asks hosts in rounds, and never waits in a second round for a host that the previous one has given up.

    Nor does it, as long as there are others, for one that could not be reached when it was asked last. `name` returns the
    name of a host. A host is asked once at a time, even by several threads. In what is returned, one that does not answer
    has an error of code `silent`, which says since when. `stale` is for how many seconds its last answer counts instead.
    """

    def __init__(self, name: Callable[[Any], str], stale: float | None = None) -> None:
        self._name = name
        self._stale = STALE if stale is None else stale
        self._lines: dict[Any, _Line] = {}
        self._changed = threading.Condition()
        self._slots = {True: _Slots(), False: _Slots()}  # of hosts that answered the last time, and of others

    def on_each(self, hosts: Iterable[H], task: Callable[[H], T]) -> Outcome[H, T]:
        """Do `task` for all hosts; return once all have answered, or those that are missing have been quiet for long."""
        every = list(hosts)
        with self._changed:
            lines = {host: self._lines.setdefault(host, _Line(time.time())) for host in every}
            idle = [host for host, line in lines.items() if not line.busy]
            for host in idle:
                lines[host].busy, lines[host].given_up = True, lines[host].unheard
            if all(line.given_up for line in lines.values()):
                for host in idle:
                    lines[host].given_up = False
            for host in idle:
                slots = self._slots[lines[host].answers]
                threading.Thread(target=self._ask, args=(host, task, slots), daemon=True, name="look").start()
            self._wait([line for line in lines.values() if not line.given_up])
            return self._outcome(lines)

    def _ask(self, host: H, task: Callable[[H], T], slots: _Slots) -> None:
        value, problem = None, None
        with slots.slot():
            try:
                value = task(host)
            except Exception as error:
                problem = error
        with self._changed:
            line = self._lines[host]
            line.busy, line.value, line.problem = False, value, problem
            if problem is None:
                line.heard, line.since = time.monotonic(), time.time()
            # A wake costs as much as an answer.
            if not any(one.busy and not one.given_up for one in self._lines.values()):
                self._changed.notify_all()

    def _wait(self, asked: list[_Line]) -> None:
        """Wait for those that were asked in this round, as long as one after the other answers."""
        ever = any(line.heard > float("-inf") for line in self._lines.values())
        missing = len(asked)
        deadline = time.monotonic() + (SILENCE_TIMEOUT if ever else FIRST_ANSWER_TIMEOUT)
        while left := sum(line.busy for line in asked):
            if left < missing:
                missing, deadline = left, time.monotonic() + SILENCE_TIMEOUT
            elif time.monotonic() >= deadline:
                break
            self._changed.wait(min(0.5, max(0.0, deadline - time.monotonic())))
        for line in asked:
            line.given_up = line.busy

    def _outcome(self, lines: Mapping[H, _Line]) -> Outcome[H, T]:
        done: dict[H, T] = {}
        failed: dict[H, DeployError] = {}
        for host, line in lines.items():
            problem = line.problem
            if problem is not None and not isinstance(problem, DeployError):
                raise problem
            if problem is not None:
                failed[host] = _since(problem, line.since)
            elif not line.busy or time.monotonic() - line.heard <= self._stale:
                done[host] = line.value
            else:
                silent = HostError(self._name(host), "silent", "it does not answer", "look at the host and its network")
                failed[host] = _since(silent, line.since)
        return Outcome(done, failed)


def _since(problem: DeployError, since: float) -> DeployError:
    """Return why a host does not answer, and since when."""
    if not isinstance(problem, HostError) or problem.code not in UNHEARD:
        return problem
    at = datetime.fromtimestamp(since)
    form = "%H:%M:%S" if at.date() == datetime.now().date() else "%Y-%m-%d %H:%M:%S"
    words = f"{problem.cause}; unreachable since {at.strftime(form)}"
    return HostError(problem.host, problem.code, words, problem.hint)
