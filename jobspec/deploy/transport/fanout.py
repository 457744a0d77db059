"""The same thing on many hosts side by side: one bad host never hides the others."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar, cast

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.hosts import Host

T = TypeVar("T")
H = TypeVar("H")

MAX_PARALLEL = 64  # hosts that are talked to at the same time
LEAVE = 3.0  # seconds that tasks get to end in where their command is interrupted


@dataclass(frozen=True, slots=True)
class Outcome(Generic[H, T]):
    """What came of it: a value for each host that did it, an error for each that did not."""

    done: Mapping[H, T]
    failed: Mapping[H, DeployError]


class OnHost(Protocol):
    """What belongs to one host, as a job's place there."""

    @property
    def host(self) -> Host:
        """The host."""


S = TypeVar("S", bound=OnHost)


def failures_of(outcome: Outcome[S, Any]) -> dict[str, DeployError]:
    """Return why hosts failed, by their names."""
    return {one.host.name: error for one, error in outcome.failed.items()}


@dataclass(frozen=True, slots=True)
class _End(Generic[H, T]):
    """How a task has ended: with a value, unless with an error."""

    host: H
    value: T | None = None
    error: BaseException | None = None


_left: list[Thread] = []  # those whose command was interrupted, and that went on


def fan_out(hosts: Iterable[H], task: Callable[[H], T], at_once: int = MAX_PARALLEL) -> Outcome[H, T]:
    """Do `task` for all hosts, `at_once` at a time; every one is tried, whatever happens to the others.

    Where this is interrupted (Ctrl-C, SIGTERM), no further task begins. Those that run have LEAVE seconds to end, or until
    the next Ctrl-C, and are left then: see `after_left`.
    """
    every = list(hosts)
    waiting, ended = deque(every), SimpleQueue[_End[H, T] | None]()
    # Python waits for the threads of an executor before it ends, and so for hosts that do not answer.
    workers = [
        Thread(target=_work, args=(waiting, task, ended), daemon=True, name=f"host_{number}")
        for number in range(min(at_once, len(every)))
    ]
    ends: dict[H, _End[H, T]] = {}
    try:
        for worker in workers:
            worker.start()
        for _ in workers:
            while (end := _next(ended)) is not None:
                ends[end.host] = end
    except BaseException:
        waiting.clear()
        _leave(workers)
        raise
    return _outcome(ends[host] for host in every if host in ends)


def _next(queue: SimpleQueue[T]) -> T:
    """Return what comes next. A signal that arrives just before Python waits is noticed only once it waits no more."""
    while True:
        try:
            return queue.get(timeout=0.5)
        except Empty:
            continue


def _work(waiting: deque[H], task: Callable[[H], T], ended: SimpleQueue[_End[H, T] | None]) -> None:
    """Do the task for one host after the other; tell the end of each, and that there are no more."""
    while waiting:
        try:
            host = waiting.popleft()
        except IndexError:  # another worker was quicker
            break
        try:
            ended.put(_End(host, task(host)))
        except DeployError as error:
            ended.put(_End(host, error=error))
        except BaseException as error:
            waiting.clear()
            ended.put(_End(host, error=error))
    ended.put(None)


def _outcome(ends: Iterable[_End[H, T]]) -> Outcome[H, T]:
    """Return what came of all tasks. Raises what one of them raised that is no DeployError."""
    done: dict[H, T] = {}
    failed: dict[H, DeployError] = {}
    for end in ends:
        if end.error is None:
            done[end.host] = cast("T", end.value)
        elif isinstance(end.error, DeployError):
            failed[end.host] = end.error
        else:
            raise end.error
    return Outcome(done, failed)


def _leave(workers: Iterable[Thread]) -> None:
    """Wait a moment for workers to end, and leave those that go on."""
    deadline = time.monotonic() + LEAVE
    try:
        for worker in workers:
            if worker.is_alive():
                worker.join(max(0.0, deadline - time.monotonic()))
    finally:
        _left.extend(worker for worker in workers if worker.is_alive())


def after_left(do: Callable[[], object]) -> None:
    """Have `do` called once every task that was left has ended: now, or later beside what this process does, if it lives.

    For locks: until then, nobody else may change what such a task still changes.
    """
    left = [worker for worker in _left if worker.is_alive()]
    if not left:
        do()
        return

    def wait() -> None:
        for worker in left:
            worker.join()
        do()

    Thread(target=wait, daemon=True, name="left").start()
