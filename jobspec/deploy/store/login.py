"""The user who runs this process."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """Return the user's login name, or the number: in a container a user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        return str(os.getuid())
