"""What a kill leaves of an example's checkpoints, without the run that is killed: those up to a step, and half of a later one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path


def steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder."""
    found = (re.search(r"-(\d+)", path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def cut(folder: Path, into: Path, step: int, writing: str) -> Path:
    """Copy what was there when a process was killed while it saved the checkpoint after `step`, and return the copy."""
    shutil.copytree(folder, into)
    later = [path for path in sorted(into.iterdir()) if int(path.stem.rpartition("-")[2]) > step]
    half = later[0].read_bytes()
    for path in later:
        path.unlink()
    (into / writing).write_bytes(half[: len(half) // 2])
    return into
