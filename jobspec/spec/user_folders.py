"""The folders in which a user's own files are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def user_folder(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """Return the folder that an XDG `variable` names; `default` is below the home folder.

    A relative value does not count, as the XDG Base Directory Specification says: each folder would have files of its own.
    """
    given = environ.get(variable, "")
    return Path(given if os.path.isabs(given) else _below_home(default)).absolute()


def _below_home(path: str) -> str:
    """Return a path below the user's home folder: `/`, as Docker has it, for a user whom this machine does not know.

    Not a folder called `~`: what is in that, only commands in the same folder would find.
    """
    home = os.path.expanduser("~")
    return os.path.join("/" if home == "~" else home, path)
