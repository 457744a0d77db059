"""Signals that end a command of jobctl's: it restores the terminal, and removes what it has left elsewhere."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have this process end in order where its terminal goes away, or somebody ends it."""
    numbers = (signal.SIGHUP, signal.SIGTERM)

    def end(number: int, frame: object) -> None:
        for one in numbers:  # a shell whose terminal goes away sends a second one
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
