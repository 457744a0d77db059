"""How tests wait for what happens in other processes: for a condition, and never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")

PROMPT = 60.0  # seconds for what takes one or two on an idle machine
PATIENCE = 300.0  # seconds for what takes a few on an idle machine; what is niced takes hundreds beside four workers


def eventually(look: Callable[[], T | Literal[False] | None], seconds: float = PATIENCE) -> T:
    """Return the first true value of `look`; fail if there is none within `seconds`."""
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not (value := look()):
        now = time.monotonic()
        assert now < deadline, f"not within {seconds:g} s"
        # Looks take a tenth of a core: a command of jobctl's costs what is waited for its time, where all cores are busy.
        time.sleep(min(1.5, max(0.01, 9 * (now - asked))))
        asked = time.monotonic()
    return value


def promptly(look: Callable[[], T | Literal[False] | None], seconds: float = PROMPT) -> T:
    """The same for what nothing niced and no job delays: a test that fails because of a bug does so within a minute."""
    return eventually(look, seconds)
