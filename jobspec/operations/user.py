"""Who calls jobctl."""

from __future__ import annotations

import getpass
import os
from pathlib import Path


def user_name() -> str:
    """Return the login name of who calls jobctl; in a container it may have none, and is known by its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        return str(os.getuid())


def home() -> Path | None:
    """Return the home directory of who calls jobctl, None if it has none."""
    found = os.path.expanduser("~")
    return Path(found) if os.path.isabs(found) else None
