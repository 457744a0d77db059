"""One launcher on its own: started as a deployer starts it, told by a control file what to do, seen by its report."""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import glob
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.render.launcher import launcher
from tests.tools.launches import LAUNCH
from tests.tools.processes import by_age, marked
from tests.tools.waiting import promptly

OLDEST, NEWEST = "3.8", "3.13"  # of the Pythons that are promised


def interpreter(version: str) -> str | None:
    """Return the Python of that version: from PATH, or one that pyenv or uv has installed.

    The program itself: what a version manager has on PATH in its place costs ten times as much to start.
    """
    homes = [os.path.expanduser("~/.pyenv/versions"), os.path.expanduser("~/.local/share/uv/python")]
    places = [found for home in homes for found in sorted(glob.glob(f"{home}/*{version}.*/bin/python{version}"))]
    ask = "import sys; print(sys.executable)"
    for path in (*places, shutil.which(f"python{version}")):
        if path:
            done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout.strip()
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked `every_python` on the newest Python, too, where tests that take long are asked for."""
    if "python" in metafunc.fixturenames and metafunc.definition.get_closest_marker("every_python"):
        metafunc.parametrize(
            "python",
            [OLDEST, pytest.param(NEWEST, marks=pytest.mark.long)],
            indirect=True,
            ids=["oldest", "newest"],
            scope="session",
        )


@pytest.fixture(scope="session")
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter that the launcher runs on: the oldest, or the tests' own where that is not here."""
    version = getattr(request, "param", OLDEST)
    found = interpreter(version)
    if found is None and os.environ.get("JOBCTL_PYTHONS") == "required":
        pytest.fail(f"no Python {version} here")
    if found is None and version == NEWEST:
        pytest.skip(f"no Python {version} here")
    return found or sys.executable


# Compiling the launcher takes longer than all else that it does at its start, so a worker does that once for each Python.
# Hosts get and start the text of it, in the tests of `local` and `fleet`.
COMPILE = "import marshal, sys; marshal.dump(compile(sys.stdin.buffer.read(), sys.argv[1], 'exec'), sys.stdout.buffer)"
START = """
import marshal, os, sys
sys.argv.pop(0)
compiled = sys.argv.pop(0)
__file__ = sys.argv[0]
sys.path[0] = os.path.dirname(__file__)
with open(compiled, "rb") as file:
    exec(marshal.load(file))
"""


@functools.cache
def compiled(python: str) -> str:
    """Return the path of the launcher as this Python has compiled it."""
    folder = tempfile.mkdtemp(prefix="jobctl-compiled-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    done = subprocess.run([python, "-c", COMPILE, "launcher.py"], input=launcher(), stdout=subprocess.PIPE, check=True)
    path = Path(folder) / "launcher"
    path.write_bytes(done.stdout)
    return str(path)


PATIENCE = 60.0  # seconds for what takes one or two on an idle machine
STALL = 6.0  # seconds that no process stands still, however busy the machine: a shorter lease may be over too soon


def kill_together(pids: Iterable[int]) -> None:
    """SIGKILL processes that would see to each other's death: none of them does anything after the first is dead."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # its guard was a bit quicker
                os.kill(pid, number)


def lose_power(*nodes: Node) -> None:
    """SIGKILL all that runs on these nodes at once, also what has just been started, as if their hosts had no power."""
    stopped: set[int] = set()
    while new := {pid for node in nodes for pid in node.living()} - stopped:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        promptly(lambda new=new: all(stands_still(pid) for pid in new))
        stopped |= new
    kill_together(stopped)


def stands_still(pid: int) -> bool:
    """Say whether a process starts nothing any more: it is stopped, or has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tTZX"
    except OSError:
        return True


class Supervisor(threading.Thread):
    """Answers the ticks of launchers as the supervisor does, while `answering`; `lines` is what it heard.

    It answers in folders of nodes, as on this machine, or below `run`, as on hosts.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self.root, self.feed = root, root / "run" / "feeds" / f"test-{id(self)}"
        self.feed.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(self.feed)
        self.handle = os.open(self.feed, os.O_RDWR | os.O_NONBLOCK)
        self.answering, self.on_host, self.over = True, False, False
        self.hearing = threading.Lock()
        self.answered: list[float] = []  # when
        self.lines: list[dict[str, Any]] = []

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over = True
        self.join()
        os.close(self.handle)

    def run(self) -> None:
        while not self.over:
            ready, _, _ = select.select([self.handle], [], [], 0.1)
            for line in os.read(self.handle, 65536).decode().splitlines() if ready else ():
                with self.hearing:
                    self.hear(json.loads(line))

    def hear(self, line: dict[str, Any]) -> None:
        """Take note of a tick, and answer it."""
        self.lines.append(line)
        if self.answering and line["node"] >= 0:  # an idle launcher has no lease
            place = f"run/answers/{line['node']}" if self.on_host else f"node-{line['node']}/answer"
            (self.root / place).write_text(f"{line['tick']} {len(self.lines)}\n")
            self.answered.append(time.monotonic())

    def silence(self) -> None:
        """Answer nothing from now on; not what was heard just now, either."""
        with self.hearing:
            self.answering = False


class Node:
    """A node's directory, its control file, and its launcher."""

    def __init__(self, root: Path, python: str) -> None:
        self.root, self.python = root, python
        self.dir = root / "node-0"
        self.program = root / "launcher.py"
        root.mkdir(parents=True, exist_ok=True)
        self.program.write_bytes(launcher())
        self.control = root / "run" / "control.json"
        self.started: list[subprocess.Popen[str]] = []
        self.said = b""
        self.mark = f"JOBCTL_TEST_MARK={root}"
        self.supervisor = Supervisor(root)
        self.launch: dict[str, Any] = {**copy.deepcopy(LAUNCH), "workdir": str(root)}

    def start(self, *more: str, environ: dict[str, str] | None = None, **launch: Any) -> subprocess.Popen[str]:
        """Start the launcher with changes to what it is told in its environment."""
        self.launch.update(launch)
        name, _, value = self.mark.partition("=")
        clean = {key: item for key, item in os.environ.items() if not key.startswith(("JOBCTL_", "PYTHON"))}
        program = [self.python, "-c", START, compiled(self.python), str(self.program)]
        argv = [*program, "--control", str(self.control), "--dir", str(self.dir), *more]
        process = subprocess.Popen(
            argv,
            env={**clean, name: value, "JOBCTL_LAUNCH": json.dumps(self.launch), **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def order(self, number: int = 1, command: str = "run", **changes: Any) -> None:
        """Write the control file, as deployers do: whole, by rename."""
        members = [{"node": 0, "rank": 0, "roles": ["trainer"], "host": "a", "address": "127.0.0.1"}]
        members[0]["nproc"] = self.launch["nproc"]
        order = {
            "version": 1,
            "job": "demo",
            "run_id": "demo-1",
            "number": number,
            "command": command,
            "grace": 5.0,
            "members": members,
            "rendezvous": {"address": "127.0.0.1", "port": 29999, "id": f"demo-{number}"},
            "checkpoint_dir": "/ckpt",
            **changes,
        }
        self.write(json.dumps(order))

    def write(self, text: str) -> None:
        """Replace the control file by any text."""
        self.control.parent.mkdir(exist_ok=True)
        new = self.control.with_suffix(".new")
        new.write_text(text)
        new.replace(self.control)

    def report(self) -> dict[str, Any]:
        """Return what the launcher says."""
        try:
            report: dict[str, Any] = json.loads((self.dir / "report.json").read_text())
        except FileNotFoundError:
            return {"state": None, "generation": None, "processes": []}
        return report

    def says(self, text: str) -> None:
        """Wait until the launcher started last has said so in its own log."""
        pipe = self.started[-1].stdout
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)

        def said() -> bool:
            with contextlib.suppress(BlockingIOError):
                self.said += os.read(pipe.fileno(), 65536)
            return text in self.said.decode()

        promptly(said)

    def looks(self) -> None:
        """Wait until the launcher has looked at its order again: it does before it sends the tick after the next, or it has ended."""
        heard = len(self.supervisor.lines)
        promptly(lambda: len(self.supervisor.lines) > heard + 1 or self.started[-1].poll() is not None)

    def until(self, state: str, generation: int | None = None, seconds: float = PATIENCE) -> dict[str, Any]:
        """Wait until the launcher reports `state`, and return the report."""

        def there() -> dict[str, Any] | None:
            report = self.report()
            return report if report["state"] == state and generation in (None, report["generation"]) else None

        try:
            found: dict[str, Any] = promptly(there, seconds)
        except AssertionError:
            raise AssertionError(f"not {state}: {self.report()}") from None
        return found

    def log(self, name: str = "workerlog.0", generation: int = 1) -> str:
        """Return a log of a generation."""
        path = self.dir / "logs" / str(generation) / name
        return path.read_text(errors="replace") if path.exists() else ""

    def script(self, text: str) -> list[str]:
        """Return the command that runs a Python program, on the launcher's interpreter."""
        path = self.root / f"script-{len(list(self.root.glob('script-*')))}.py"
        path.write_text(text)
        return [self.python, "-u", str(path)]

    def below_a_launcher(self, script: str) -> dict[str, Any]:
        """Return what starts a script below a framework's launcher, which waits for it and takes no care of anything."""
        wrapper = self.root / "wrapper.py"
        wrapper.write_text("import subprocess, sys\nsys.exit(subprocess.call(sys.argv[2:]))\n")
        start = [self.python, str(wrapper), "framework-launcher", {"slot": "process"}]
        return {"start": start, "command": self.script(script)}

    def living(self) -> dict[int, str]:
        """Return the processes with this node's mark in their environment: pid to command line."""
        return marked(f"{self.mark}\0")

    def pids(self, *words: str) -> list[int]:
        """Return the pids of living processes with all `words` in their command lines, oldest first."""
        return by_age(pid for pid, line in self.living().items() if all(word in line for word in words))

    def guards(self) -> list[int]:
        """Return the pids of the guards of processes, as they have written them down."""
        records = sorted(self.dir.glob("processes/*/*.json"))
        return [json.loads(record.read_text())["guard_pid"] for record in records]

    def gone(self, seconds: float = PATIENCE) -> None:
        """Wait until nothing of this node lives."""
        promptly(lambda: not self.living(), seconds)


def failure(node: Any, **launch: Any) -> dict[str, Any]:
    """Run to a failure and return the report."""
    node.start(**launch)
    node.order(1)
    report: dict[str, Any] = node.until("failed")
    return report


@pytest.fixture
def node(tmp_path: Path, python: str) -> Iterator[Node]:
    """A node whose processes are gone afterwards, whatever happens."""
    made = Node(tmp_path, python)
    with made.supervisor:
        yield made
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in made.started:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
    left = made.living()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}
