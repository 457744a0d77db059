"""Progress while a command waits: a live line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from jobctl.console import colourful


class Progress:
    """A spinner with a count, shown only on a terminal and only while something is waited for."""

    def __init__(self, *, quiet: bool) -> None:
        self.live: Any = None
        self.wanted = not quiet and colourful(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def show(self, text: str, done: tuple[int, int] | None = None) -> None:
        """Say what is waited for, and of how many nodes so many are `done`."""
        if not self.wanted:
            return
        if self.live is None:
            from rich.console import Console
            from rich.status import Status

            self.live = Status("", console=Console(stderr=True))
            self.live.start()
        from rich.markup import escape

        count = f"{done[0]}/{done[1]} nodes · " if done else ""
        self.live.update(count + escape(text))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()
