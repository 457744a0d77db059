"""Starting a process that outlives the command and its terminal."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jobctl.jobspec.deploy.errors import DeployError

TIMEOUT = 30.0  # seconds


def start_detached(argv: Sequence[str], environ: Mapping[str, str], log: Path, until: Callable[[], bool]) -> None:
    """Start `argv` in a session of its own, its output in `log`; return once `until` holds.

    Raises DeployError if it ends before that, or does not get there in 30 s.
    """
    with log.open("ab") as file:
        process = subprocess.Popen(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            cwd="/",
        )
    deadline = time.monotonic() + TIMEOUT
    while not until():
        if process.poll() not in (None, 0):
            raise DeployError(f"{' '.join(argv)} ended with code {process.returncode}", f"see {log}")
        if process.poll() == 0:
            return  # it found nothing left to do
        if time.monotonic() > deadline:
            raise DeployError(f"{' '.join(argv)} does not start", f"see {log}")
        time.sleep(0.01)
