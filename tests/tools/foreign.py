"""A folder of somebody else, as what runs on a host sees it. Only root could make a real one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def plays_owner(
    bin_: Path, monkeypatch: pytest.MonkeyPatch, name: str, uid: int = 4711, *, squashed: bool = False
) -> None:
    """Have each folder called `name` belong to user `uid`, for commands that run from now on.

    `squashed`: the file system calls us so, too, as one on NFS does with root.
    """
    stat = shutil.which("stat")
    us = f"'-Lc %u /proc/self/fd/'*) echo {uid} ;;" if squashed else ""
    them = f"'-c %f:%u -- '*/{name}) {stat} \"$@\" > /dev/null || exit; echo 41ed:{uid} ;;"
    bin_.mkdir()
    (bin_ / "stat").write_text(f'#!/bin/sh\ncase $* in {them} {us} *) exec {stat} "$@" ;; esac\n')
    (bin_ / "stat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
