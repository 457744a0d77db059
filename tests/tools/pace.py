"""Has an example in a test go no further than the test has seen: a job that is looked at from outside may be fast, and who looks slow."""

from __future__ import annotations

import os
from pathlib import Path

_STEP = "time.sleep(options.step_delay)"  # once in each example, when a step has been made
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


def keep_pace(example: Path, into: Path, *, counter: str = "step") -> None:
    """Write an example's script, which waits after each step that is not below `limit`; `counter` is its name for the step."""
    script = (example / "train.py").read_text()
    assert script.count(_STEP) == 1
    (into / "train.py").write_text(script.replace(_STEP, f"{_STEP}; __import__('pace').pace({counter})"))
    (into / "pace.py").write_text(_PACE)


def limit(checkpoints: Path, step: int) -> None:
    """Let the jobs that keep their checkpoints there make that many steps, until the file is removed."""
    new = checkpoints / "limit.new"
    new.write_text(str(step))
    os.replace(new, checkpoints / "limit")
