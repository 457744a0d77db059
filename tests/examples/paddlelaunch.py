"""Starts an example's script with Paddle's own launcher on one machine, or without it, and kills it in the middle."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.tools.frameworks import python_of
from tests.tools.ports import free_ports
from tests.tools.standins import PATH

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 240  # seconds for what takes ten on an idle machine
LINES = re.compile(r"(started|resumed|epoch=|step=|final) ?.*")  # what the scripts print, not what Paddle does


def environ(**variables: str) -> dict[str, str]:
    """Return this process's environment without what belongs to a job around it or to jobctl, plus `variables`."""
    foreign = ("JOBCTL_", "PADDLE_", "FLAGS_", "PYTHONPATH", "POD_IP", "TRAINING_ROLE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1", **variables}


def launch(processes: int, script: str, *args: str) -> list[str]:
    """Return the argv that runs the script of an example in `processes` processes.

    The launcher chooses ports that are free, among those that Linux gives to any process that connects: by the time that
    rank 0 listens, one may be taken.
    """
    ports = ["--ips", "127.0.0.1", "--start_port", str(free_ports(processes)[0])]
    launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node", str(processes), *ports]
    return [str(python_of("paddle")), *launcher, str(EXAMPLES / script), *args]


def alone(script: str, *args: str) -> list[str]:
    """Return the argv that runs the script without a launcher."""
    return [str(python_of("paddle")), str(EXAMPLES / script), *args]


def lines(argv: list[str], *, code: int = 0, **variables: str) -> list[str]:
    """Run to the end and return the lines that rank 0 printed; fails unless the exit code is `code`."""
    with tempfile.TemporaryDirectory() as logs:
        env = environ(PADDLE_LOG_DIR=logs, **variables)
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if LINES.fullmatch(line)]


def run_and_kill(argv: list[str], when: Callable[[str], bool], **variables: str) -> list[str]:
    """Run one process, SIGKILL it after the first line that `when` accepts; return the lines printed."""
    seen = []
    with (
        tempfile.TemporaryDirectory() as logs,
        subprocess.Popen(
            argv,
            env=environ(PADDLE_LOG_DIR=logs, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as job,
    ):
        assert job.stdout is not None
        for line in job.stdout:
            seen.append(line.rstrip("\n"))
            if when(seen[-1]):
                job.kill()
                break
        seen += job.stdout.read().splitlines()
        assert job.wait(PATIENCE) != 0
    return [line for line in seen if LINES.fullmatch(line)]
