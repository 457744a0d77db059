"""Has an example in a test go no further than the test has seen: a job that is looked at from outside may be fast, and who looks slow."""

from __future__ import annotations

import os
import re
from pathlib import Path

_STEP = r"time\.sleep\(options\.step_delay.*\)$"  # once in each example, when a step has been made
_PACE = """\
import math, os, re, time
folder = re.sub("/fresh-[0-9]+$", "", os.environ["JOBCTL_CHECKPOINT_DIR"])
def allowed():
    try:
        return int(open(os.path.join(folder, "limit")).read())
    except FileNotFoundError:
        return math.inf
def pace(step):
    while step >= allowed():
        time.sleep(0.05)
"""


def keep_pace(example: Path, into: Path, *, counter: str = "step") -> str:
    """Write an example's script, which waits after each step that is not below `limit`, and return its path.

    `counter` is its name for the step.
    """
    text, count = re.subn(
        _STEP,
        lambda found: f"{found[0]}; __import__('pace').pace({counter})",
        (example / "train.py").read_text(),
        flags=re.M,
    )
    assert count == 1
    into.mkdir(exist_ok=True)
    (into / "train.py").write_text(text)
    (into / "pace.py").write_text(_PACE)
    return str(into / "train.py")


def limit(checkpoints: Path, step: int | None) -> None:
    """Let the jobs that keep their checkpoints there make that many steps from now on; None: as many as they like."""
    if step is None:
        (checkpoints / "limit").unlink()
        return
    checkpoints.mkdir(parents=True, exist_ok=True)
    new = checkpoints / "limit.new"
    new.write_text(str(step))
    os.replace(new, checkpoints / "limit")
