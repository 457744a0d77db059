"""Files of a job that runs, by what is in them: any of them may be replaced while a test looks."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def holding(folder: Path, *words: bytes) -> list[Path]:
    """Return the files below a folder in which any of these stands."""
    found = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return [path for path in found if any(word in content(path) for word in words)]


def content(path: Path) -> bytes:
    """Return what is in a file; nothing of a pipe, or if it was put in place of another just now."""
    try:
        return path.read_bytes() if stat.S_ISREG(path.stat().st_mode) else b""
    except FileNotFoundError:
        return b""
