"""Text on a terminal that is drawn again in its place as it changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobctl import console

if TYPE_CHECKING:
    from rich.console import OverflowMethod


def draws_live() -> bool:
    """Say whether stdout is a terminal on which text can be drawn again. On a dumb one nothing would be seen before the last."""
    return sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def draw_live(frames: Iterable[str]) -> None:
    """Draw one text after the other in the same place, each as soon as it is there; the last one stays."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    screen = sys.stdout  # of which rich puts another in place for the time
    cut: OverflowMethod = "ellipsis" if console.printable("…", screen) == "…" else "crop"
    with Live(console=Console(), auto_refresh=False) as live:
        for text in frames:
            live.update(Text(console.printable(text, screen), no_wrap=True, overflow=cut), refresh=True)
