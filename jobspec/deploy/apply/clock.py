"""The clock that loops are given, so that tests can give them another."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a loop needs of time."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


def pause(seconds: float) -> None:
    """Return after `seconds`."""
    time.sleep(seconds)


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        pause(seconds)
