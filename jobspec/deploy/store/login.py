"""The user who runs this process: the name, and the home folder."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """Return the user's login name, or the number: in a container a user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        return str(os.getuid())


def below_home(path: str) -> str:
    """Return a path below the user's home folder: `/`, as Docker has it, for a user whom this machine does not know.

    Not a folder called `~`: what is in that, only commands in the same folder would find.
    """
    home = os.path.expanduser("~")
    return os.path.join("/" if home == "~" else home, path)
