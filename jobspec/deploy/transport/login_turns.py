"""Turns at a jump host: an sshd refuses some connections while more than ten have not logged in yet (MaxStartups).

All hosts behind it are connected to at once, each through a connection of its own to the jump host.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

MAX_LOGINS = 8  # logins of this process at one jump host


class _Logins:
    """Those at one jump host."""

    def __init__(self) -> None:
        self.slots, self.let_in = threading.BoundedSemaphore(MAX_LOGINS), 0.0  # when somebody was, last

    def begin(self, seconds: float) -> bool:
        """Wait for a turn until nobody was let in for so many seconds: a jump host may say nothing."""
        asked = time.monotonic()
        while (left := max(asked, self.let_in) + seconds - time.monotonic()) > 0:
            if self.slots.acquire(timeout=left):
                return True
        return self.slots.acquire(blocking=False)


_logins: dict[tuple[str, int], _Logins] = {}
_lock = threading.Lock()


@contextmanager
def turn(host: str, port: int, seconds: float) -> Iterator[bool]:
    """Log in at a jump host during the `with` block, which begins when nobody was let in for so many seconds at the latest.

    Yield whether it is one's turn.
    """
    with _lock:
        logins = _logins.setdefault((host, port), _Logins())
    taken = logins.begin(seconds)
    try:
        yield taken
        logins.let_in = time.monotonic()
    finally:
        if taken:
            logins.slots.release()
