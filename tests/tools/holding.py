"""Examples that wait in the middle, so that there is something to kill however slow whoever kills it is."""

from __future__ import annotations

import re
from pathlib import Path


def add_hold(script: Path, step: int, flag: Path, counter: str = "step") -> None:
    """Have a copy of an example's script wait after each step from `step` on, for as long as there is a file `flag`."""
    text, count = re.subn(
        r"^( +)(time\.sleep\(options\.step_delay.*\))$",
        rf"\1\2\n\1while {counter} >= {step} and os.path.exists({str(flag)!r}):\n\1    time.sleep(0.02)",
        script.read_text(),
        flags=re.M,
    )
    assert count == 1, script
    script.write_text(text)
    flag.touch()


def held(script: Path, into: Path, step: int) -> str:
    """Return the path of a copy of an example's script that waits from `step` on while there is a file `hold` beside it."""
    into.mkdir()
    copy = into / script.name
    copy.write_text(script.read_text())
    add_hold(copy, step, into / "hold")
    return str(copy)
