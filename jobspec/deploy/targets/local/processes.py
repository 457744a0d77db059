"""Processes of a job on this machine, which take the place of containers: each begins with a script, and has marks.

See store/processes.py for the marks: by them whatever runs is found again, and so is what it has left.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.transport.descriptors import for_child

HOST = "localhost"  # what plans and hosts files call this machine


def spawn(work: Path, name: int | str, log: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the script of a node or service in a session of its own; what it prints is added to `log`."""
    marks = {**processes.folder_mark(processes.WORK_MARK, work), processes.NODE_MARK: str(name)}
    with log.open("ab") as file:
        return subprocess.Popen(
            ["sh", str(script_of(work, name))],
            env={**environ, **marks},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=for_child(),
        )


def folder_of(work: Path, name: int | str) -> Path:
    """Return the directory of a node or service."""
    return work / (f"node-{name}" if isinstance(name, int) else name)


def script_of(work: Path, name: int | str) -> Path:
    """Return the script that starts a node's launcher, or a service."""
    return Path(f"{folder_of(work, name)}.sh")


def last_words(log: Path, count: int) -> str:
    """Return the last lines of a log, below a line that says whose they are."""
    lines = log.read_text(errors="replace").splitlines()[-count:] if log.exists() else []
    return "\n".join([f"{log} ends with:", *lines]) if lines else f"{log} is empty"
