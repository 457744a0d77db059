"""The pauses between attempts to reach the hosts of one job, each of which grows while its host does not answer.

If all hosts have become silent, the cause is most likely on this side. As soon as one is heard again, all others are
tried at once, however long they have been silent. Until then they are tried more often: together TRIES times a second.
"""

from __future__ import annotations

import random
import threading

FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE = 0.5, 5.0  # seconds between two attempts at one host
TRIES = 3  # attempts a second at all hosts together while none is heard; one host is tried once a second at most


class RetryPauses:
    """Those of all hosts."""

    def __init__(self) -> None:
        self._all: list[RetryPause] = []

    def one(self) -> RetryPause:
        """Return the pauses of one more host."""
        made = RetryPause(self)
        self._all.append(made)
        return made

    def longest(self) -> float:
        """Return how long a pause may become now."""
        if any(not one.silent for one in self._all):
            return MAX_RETRY_PAUSE
        return min(MAX_RETRY_PAUSE, max(1.0, len(self._all) / TRIES))

    def end_all(self) -> None:
        """Have all hosts tried now that are silent."""
        for one in self._all:
            if one.silent:
                one.end()


class RetryPause:
    """Those of one host. `silent`: whether the last attempt has failed."""

    def __init__(self, all_: RetryPauses) -> None:
        self._all, self.silent = all_, False
        self._length = FIRST_RETRY_PAUSE
        self._over = threading.Event()

    def hear(self) -> None:
        """Take note that the host is heard. If it was silent, so may others be for the same reason: they are tried now."""
        self._length = FIRST_RETRY_PAUSE
        if self.silent:
            self.silent = False
            self._all.end_all()

    def fail(self) -> None:
        """Take note that an attempt has failed."""
        self.silent = True

    def end(self) -> None:
        """End the pause that is now, or the next one, and begin with short ones again."""
        self._length = FIRST_RETRY_PAUSE
        self._over.set()

    def next(self) -> float:
        """Return how long the next pause is to be, in seconds."""
        length = min(self._length, self._all.longest())
        self._length = min(2 * length, MAX_RETRY_PAUSE)
        return length * random.uniform(0.5, 1.0)

    def wait(self) -> None:
        """Wait until the next attempt is due."""
        self._over.wait(self.next())
        self._over.clear()

    @property
    def is_over(self) -> bool:
        """Whether the next attempt is due at once."""
        return self._over.is_set()
