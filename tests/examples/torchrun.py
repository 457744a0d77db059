"""Starts an example's script with torchrun on one machine, or without it, and kills it in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.tools.standins import PATH

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 180  # seconds for what takes ten on an idle machine


def environ(**variables: str) -> dict[str, str]:
    """Return this process's environment without what a job around it would have set, plus `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JOBCTL_")}
    return {**kept, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1", **variables}


def torchrun(processes: int, script: str, *args: str) -> list[str]:
    """Return the argv that runs the script of an example in `processes` processes."""
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
    ]
    return [*launcher, str(EXAMPLES / script), *args]


def alone(script: str, *args: str) -> list[str]:
    """Return the argv that runs the script without a launcher."""
    return [sys.executable, str(EXAMPLES / script), *args]


def lines(argv: list[str], *, code: int = 0, **variables: str) -> list[str]:
    """Run to the end and return the lines printed; fails unless the exit code is `code`."""
    done = subprocess.run(argv, env=environ(**variables), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout.splitlines()


def run_and_kill(argv: list[str], when: Callable[[str], bool], **variables: str) -> list[str]:
    """Run one process, SIGKILL it after the first line that `when` accepts; return the lines printed."""
    seen = []
    with subprocess.Popen(
        argv, env=environ(**variables), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as job:
        assert job.stdout is not None
        for line in job.stdout:
            seen.append(line.rstrip("\n"))
            if when(seen[-1]):
                job.kill()
                break
        seen += job.stdout.read().splitlines()
        assert job.wait(PATIENCE) != 0
    return seen
