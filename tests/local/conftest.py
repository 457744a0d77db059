"""Jobs that really run: `jobctl` as a user calls it, with a state directory of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store.processes import start_ticks
from tests.tools import commands
from tests.tools.browser import browse
from tests.tools.processes import marked
from tests.tools.waiting import eventually

__all__ = ["browse"]  # a fixture

# Trains for STEPS steps of DELAY seconds, one number at a time; goes on from its checkpoint, and fails when told to.
# A file `hold` keeps it from ending, so that there is something to kill however slow the machine is.
COUNTER = """\
import os, sys, time
node = os.environ["JOBCTL_NODE"]
steps, delay = int(os.environ.get("STEPS", "5")), float(os.environ.get("DELAY", "0.02"))
kept = os.path.join(os.environ["JOBCTL_CHECKPOINT_DIR"], "step-" + node)
step = int(open(kept).read()) if os.path.exists(kept) else 0
print("generation", os.environ["JOBCTL_GENERATION"], "from step", step, flush=True)
while step < steps:
    time.sleep(delay)
    step += 1
    print("step", step, flush=True)
    with open(kept + ".new", "w") as file:
        file.write(str(step))
    os.replace(kept + ".new", kept)
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
    if os.path.exists("fail") and node == "1":
        print("cannot go on", file=sys.stderr, flush=True)
        sys.exit(int(open("fail").read()))
while os.path.exists("hold"):
    time.sleep(0.02)
"""

SPEC = """\
name: counter
framework: torch
command: [python3, counter.py]
per: node
nodes: 2
checkpoint: {directory}/checkpoints
stop_grace_period: 5s
"""


PATIENCE = 300.0  # seconds for what takes a few on an idle machine; what is niced takes hundreds beside four workers


@dataclass
class Jobs:
    """`jobctl` in a directory and with a state directory of its own."""

    directory: Path
    environ: dict[str, str] = field(default_factory=dict)

    def popen(self, *args: str, **how: Any) -> subprocess.Popen[str]:
        """Start `jobctl` and return at once."""
        pipes = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        argv = [sys.executable, "-m", "jobctl", *args]
        return subprocess.Popen(argv, cwd=self.directory, env=self.environ, **{**pipes, **how})

    def run(self, *args: str, timeout: float = 2 * PATIENCE) -> subprocess.CompletedProcess[str]:
        """Run `jobctl` to its end."""
        return commands.run(args, self.directory, self.environ, timeout)

    def ok(self, *args: str) -> str:
        """Run `jobctl`, which must exit with 0, and return what it printed to stdout."""
        done = self.run(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Return `status -o json`."""
        state: dict[str, Any] = json.loads(self.ok("status", "-o", "json"))
        return state

    def running(self) -> dict[str, Any]:
        """Return the status once every process runs: `up` returns when every node does, which has yet to start them."""

        def all_run() -> dict[str, Any] | None:
            state = self.status()
            nodes = [node["processes"] for node in state["nodes"] if node["node"] is not None]
            there = all(nodes) and all(process["state"] == "running" for node in nodes for process in node)
            return state if there and state["phase"] == "running" else None

        return eventually(all_run)

    def left(self) -> dict[str, Any]:
        """Return the status once the supervisor has left: a job has succeeded before it has taken note of that."""
        return eventually(lambda: not (state := self.status())["supervised"] and state)

    def hold(self) -> None:
        """Keep COUNTER from ending."""
        (self.directory / "hold").touch()

    def release(self) -> None:
        """Let COUNTER end."""
        (self.directory / "hold").unlink()

    def kill_rank(self, node: int) -> None:
        """SIGKILL the first process of a node."""
        os.kill(self.running()["nodes"][node]["processes"][0]["pid"], signal.SIGKILL)

    def runs(self, generation: int) -> bool:
        """Say whether all processes run in a generation."""
        state = self.status()
        return (state["generation"], state["phase"]) == (generation, "running") and all(
            process["pid"] for node in state["nodes"] for process in node["processes"]
        )

    def kill_supervisor(self) -> None:
        """SIGKILL the supervisor; returns once it is dead."""
        for pid in self.supervisors():
            kill(pid)

    def events(self) -> list[dict[str, Any]]:
        """Return the events so far."""
        return [json.loads(line) for line in self.ok("events", "-o", "json").splitlines()]

    def set(self, **environ: str) -> None:
        """Change the environment of later commands (and so of the job's processes)."""
        self.environ.update(environ)

    @property
    def state(self) -> Path:
        """The state directory."""
        return Path(self.environ["JOBCTL_STATE_DIR"])

    def processes(self) -> dict[int, str]:
        """Return the command lines of all processes that belong to jobs of this state directory."""
        return marked(f"JOBCTL_WORK={self.state}")

    def supervisors(self) -> list[int]:
        """Return the pids of the supervisors of jobs of this state directory."""
        ours = marked(f"JOBCTL_STATE_DIR={self.state}\0")
        return [pid for pid, line in ours.items() if "supervise" in line.split()]


def kill(*pids: int) -> None:
    """SIGKILL processes that may be gone already; returns once all are: a dead one may wait for its turn to die."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: all(start_ticks(pid) is None for pid in pids))


@contextlib.contextmanager
def ui(jobs: Jobs, *args: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `jobctl ui`; yields the address that it prints, and the process."""
    with jobs.popen("ui", *args) as server:
        try:
            assert server.stderr is not None
            yield server.stderr.readline().split()[-1], server
        finally:
            server.terminate()
            assert server.wait(30) in (0, -signal.SIGKILL)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """A directory with the counting job; whatever runs of it afterwards is ended, and must have been found by `down`."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "counter.py").write_text(COUNTER)
    (directory / "job.yaml").write_text(SPEC.format(directory=directory))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("JOBCTL_")}
    made = Jobs(directory, {**environ, "JOBCTL_STATE_DIR": str(tmp_path / "state")})
    yield made
    folders = made.state / "jobs"
    names = [folder.name for folder in folders.iterdir() if folder.is_dir()] if folders.is_dir() else []
    downs = [made.run("down", name, "--timeout", "1s") for name in names]
    left = made.processes(), made.supervisors()
    for pid in [*left[0], *left[1]]:
        os.kill(pid, signal.SIGKILL)
    assert [done.stderr for done in downs if done.returncode] == []
    assert left == ({}, [])


@pytest.fixture
def slow(jobs: Jobs) -> Jobs:
    """A job that would run for minutes."""
    jobs.set(STEPS="10000", DELAY="0.02")
    return jobs


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., Any]:
    return eventually
