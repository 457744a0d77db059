"""Progress while a command waits: a live line on a terminal; elsewhere a line of what takes long, where that is asked for."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from jobctl import console
from jobctl.console import colourful

ALOUD = 5.0  # seconds for which the same is waited for until that is said where there is no terminal


class Progress:
    """A spinner with a count, shown only on a terminal and only while the command waits."""

    def __init__(self, *, quiet: bool, aloud: bool = False) -> None:
        self.live: Any = None
        self.wanted = not quiet and sys.stderr.isatty() and colourful(sys.stderr)
        self.aloud = aloud and not self.wanted and not quiet
        self.text, self.since = "", 0.0

    def __enter__(self) -> Self:
        return self

    def show(self, text: str, done: tuple[int, int] | None = None) -> None:
        """Say what the command waits for, and how many of the nodes are `done`."""
        if self.aloud:
            self._say_once(text)
        if not self.wanted:
            return
        if self.live is None:
            from rich.console import Console
            from rich.status import Status

            self.live = Status("", console=Console(stderr=True))
            self.live.start()
        from rich.markup import escape

        count = f"{done[0]}/{done[1]} nodes · " if done else ""
        self.live.update(count + escape(console.plain(text)))

    def _say_once(self, text: str) -> None:
        """Say what the command has waited for a long time for."""
        now = time.monotonic()
        if text != self.text:
            self.text, self.since = text, now
        elif now - self.since > ALOUD:
            console.say(text)
            self.since = float("inf")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()
