"""The user of jobctl: name and home."""

from __future__ import annotations

import getpass
import os
from pathlib import Path


def user_name() -> str:
    """Return the user's login name, or the number: in a container a user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        return str(os.getuid())


def home() -> Path | None:
    """Return the user's home directory, None if there is none."""
    found = os.path.expanduser("~")
    return Path(found) if os.path.isabs(found) else None
