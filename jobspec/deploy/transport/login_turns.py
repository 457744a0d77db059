"""Turns at a jump host: an sshd refuses some connections while more than ten have not logged in yet (MaxStartups).

All hosts behind it are connected to at once, each through a connection of its own to the jump host.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

AT_ONCE = 8  # logins of this process at one jump host
_slots: dict[tuple[str, int], threading.BoundedSemaphore] = {}
_lock = threading.Lock()


@contextmanager
def turn(host: str, port: int, seconds: float) -> Iterator[bool]:
    """Log in at a jump host during the `with` block, which begins after so many seconds at the latest.

    Yield whether it is one's turn.
    """
    with _lock:
        slots = _slots.setdefault((host, port), threading.BoundedSemaphore(AT_ONCE))
    taken = slots.acquire(timeout=seconds)  # of one that says nothing, those who wait learn that soon, too
    try:
        yield taken
    finally:
        if taken:
            slots.release()
