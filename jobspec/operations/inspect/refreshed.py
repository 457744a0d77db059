"""Values that take long to find out: a page gets them as they were last, while they are found out again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.operations.errors import OperationError
from jobctl.jobspec.records import dataclass

T = TypeVar("T")
FRESH = 1.0  # seconds for which a value serves all who ask


@dataclass(frozen=True, slots=True)
class _Made(Generic[T]):
    """What came of it last, and when that was."""

    value: T | None
    problem: Exception | None
    at: float


class Refreshed(Generic[T]):
    """A value that `make` finds out in a thread of its own, one at a time. Several threads may ask.

    It counts for `share` times as long as it took, at least for FRESH seconds.
    """

    def __init__(self, make: Callable[[], T], clock: Callable[[], float] = time.monotonic, share: float = 0.0) -> None:
        self._make, self._clock, self._share = make, clock, share
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._until = float("-inf")
        self._made: _Made[T] | None = None

    def get(self, patience: float) -> tuple[T | None, float]:
        """Return the value and its age in seconds; None if it has never been found out, even in `patience` seconds.

        Raises what `make` raised when it failed last.
        """
        with self._lock:
            if (self._thread is None or not self._thread.is_alive()) and self._clock() >= self._until:
                self._thread = threading.Thread(target=self._again, daemon=True, name="look")
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(patience)
        made = self._made
        if made is None:
            return None, 0.0
        if made.problem is not None:
            raise made.problem
        return made.value, max(0.0, self._clock() - made.at)

    def _again(self) -> None:
        begun = self._clock()
        value: T | None = None
        problem: Exception | None = None
        try:
            value = self._make()
        except (OperationError, DeployError, OSError, ValueError) as error:
            problem = error
        now = self._clock()
        self._made = _Made(value, problem, now)
        self._until = now + max(FRESH, self._share * (now - begun))
