"""The home of the user of jobctl."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path | None:
    """Return the user's home directory, None if there is none."""
    found = os.path.expanduser("~")
    return Path(found) if os.path.isabs(found) else None
