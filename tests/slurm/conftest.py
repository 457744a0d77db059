"""A Slurm for tests: skipped with the reason where there can be none, unless JOBCTL_FLEET=required."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Slurm, missing, sh, slurm, wait_for
from tests.slurm.newer import MORE, SLURM, Programs, lent, newer_root
from tests.tools import commands
from tests.tools.ports import free_ports

# Counts steps as a light rank, with a loss of them: node 0 writes them down, and waits until all others of its generation
# have followed. Says where it began, and ends at `last`. A node that runs twice at a time says so, and one that is told to end.
_RANK = """\
import fcntl, math, os, signal, sys, time
folder, last = os.environ["JOBCTL_CHECKPOINT_DIR"], int(sys.argv[1])
path, node = os.path.join(folder, "step"), os.environ["JOBCTL_NODE"]
def read():
    try:
        with open(path) as file: words = file.read().split()
    except FileNotFoundError: return 0, 0.0
    return int(words[0]), float.fromhex(words[1])
alone = open(os.path.join(folder, "node-" + node), "w")
try: fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: open(os.path.join(folder, "twice"), "w").close()
def end(number, frame):
    open(os.path.join(folder, "told-%s-%s" % (os.environ["JOBCTL_GENERATION"], node)), "w").close()
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
step, loss = read()
print("node", node, "with", os.environ.get("TOKEN"), "in", os.path.basename(os.path.dirname(os.getcwd())), flush=True)
print("node", node, "from step", step, "generation", os.environ["JOBCTL_GENERATION"], flush=True)
assert "SLURM_PROCID" not in os.environ and "SLURM_JOB_ID" in os.environ
seen, others = os.path.join(folder, "seen-" + os.environ["JOBCTL_GENERATION"] + "-"), int(os.environ["JOBCTL_NODES"]) - 1
def follow():
    with open(seen + node + ".new", "w") as file: file.write(str(step))
    os.replace(seen + node + ".new", seen + node)
def followed():
    paths = [seen + str(number) for number in range(1, 9)]
    return sum(int(open(path).read()) >= step for path in paths if os.path.exists(path)) >= others
while step < last:
    time.sleep(0.05)
    step, loss = read()
    if node != "0":
        follow()
    else:
        while not followed(): time.sleep(0.02)
        step, loss = step + 1, loss * 0.9 + math.sin(step)
        print("at", step, flush=True)
        with open(path + ".new", "w") as file: file.write("%d %s" % (step, loss.hex()))
        os.replace(path + ".new", path)
        with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file: file.write(str(step))
print("node", node, "done at", step, flush=True)
"""
ENDLESS = 10**9


def loss_at(step: int) -> str:
    """Return the loss that an undisturbed job has at a step."""
    loss = 0.0
    for number in range(step):
        loss = loss * 0.9 + math.sin(number)
    return loss.hex()


HOST_TIMEOUT = "6s"  # of a job that loses a machine: no process stands still for longer, however busy the machine
LONG = "5m"  # the same of one that loses none: any may
PATIENCE = 300.0  # seconds for a command, which Slurm's daemons may keep waiting


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Four nodes, for all tests of a worker: they begin with no job."""
    need(missing())
    with slurm(tmp_path_factory.mktemp("slurm") / "cluster") as made:
        yield made


@pytest.fixture(scope="session")
def newer_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The same of Slurm 24.11."""
    yield from _newer(tmp_path_factory, SLURM)


@pytest.fixture(scope="session")
def fuller_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The same of Slurm 24.11 with podman, and with the Pythons of the tests."""
    yield from _newer(tmp_path_factory, MORE)


def _newer(folders: pytest.TempPathFactory, programs: Programs) -> Iterator[Slurm]:
    need(missing() or programs.missing())
    with slurm(folders.mktemp("slurm") / "newer", root=newer_root(programs), lent=lent()) as made:
        yield made


def need(problem: str | None) -> None:
    """Skip, or fail where it is required, if something is missing."""
    if problem is not None:
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)


def versions(newer: pytest.MarkDecorator | None = None, cluster: str = "newer_cluster") -> pytest.MarkDecorator:
    """Have a test run on both versions; `newer` marks it on 24.11, whose machines are those of `cluster`."""
    clusters = ["cluster", pytest.param(cluster, marks=() if newer is None else newer)]
    return pytest.mark.parametrize("jobs", clusters, ids=["22.05", "24.11"], indirect=True)


BOTH = versions(pytest.mark.long)
FULLER = "fuller_cluster"  # for tests with frameworks or containers


@dataclass
class SlurmJobs:
    """`jobctl` on the login node of a cluster, with a job of light ranks in a folder that all nodes see."""

    cluster: Slurm
    directory: Path
    environ: dict[str, str] = field(default_factory=dict)
    name: str = "tiny"

    @property
    def python(self) -> str:
        """The Python of ranks: another root file system has one of its own."""
        return "python3" if self.cluster.root else sys.executable

    def use(self, python: Path) -> None:
        """Have the job run with this interpreter, which has a framework; skip where the machines do not have it."""
        if self.cluster.root and not any(folder in python.parents for folder in self.cluster.lent):
            pytest.skip(f"machines of Debian 13 cannot be lent {python}, which belongs to this machine's system")
        # The job gets this environment. Certificates of this machine are not there; with them, Paddle's launchers do not meet.
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            self.environ.pop(name, None)
        self.environ.update(PATH=f"{python.parent}:{self.environ['PATH']}", OMP_NUM_THREADS="1")

    def write(self, last: int = ENDLESS, *, spec: dict[str, Any] | None = None, **slurm: Any) -> None:
        """Write the spec of a job of two nodes that counts to `last`; `spec` are further keys, None removes one."""
        whole = {
            "name": self.name,
            "framework": "torch",
            "command": [self.python, "rank.py", str(last)],
            "per": "node",
            "nodes": 2,
            "checkpoint": str(self.directory / "checkpoints"),
            "recovery": {"host_timeout": LONG},
            "stop_grace_period": "60s",
            "slurm": {"exclusive": False, **slurm},
            **(spec or {}),
        }
        said = {key: value for key, value in whole.items() if value is not None}
        (self.directory / "job.yaml").write_text(json.dumps(said))
        (self.directory / "rank.py").write_text(_RANK)

    def run(self, *args: str) -> Any:
        """Run `jobctl` to its end."""
        return commands.run(args, self.directory, self.environ, PATIENCE)

    def ok(self, *args: str) -> str:
        """Run `jobctl`, which must exit with 0, and return what it printed to stdout."""
        done = self.run(*args)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def status(self) -> dict[str, Any]:
        """Return `status -o json`."""
        state: dict[str, Any] = json.loads(self.ok("status", "-o", "json"))
        return state

    def until(self, holds: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Return the first status for which a condition holds."""
        seen: list[dict[str, Any]] = []

        def look() -> object:
            seen[:] = [self.status()]
            return holds(seen[0])

        wait_for(look, what)
        return seen[0]

    def running(self) -> dict[str, Any]:
        """Return the status once all nodes run."""
        return self.until(lambda state: state["phase"] == "running", "a running job")

    @property
    def step(self) -> int:
        """The last step that was written down."""
        path = self.directory / "checkpoints" / "step"
        return int(path.read_text().split()[0]) if path.exists() else 0

    def check_steps(self) -> None:
        """Check that no node has run twice at a time, and that the loss is that of an undisturbed job."""
        checkpoints = self.directory / "checkpoints"
        step, loss = (checkpoints / "step").read_text().split()
        assert not (checkpoints / "twice").exists()
        assert loss == loss_at(int(step))

    def goes_on(self) -> None:
        """Return once the job has made more steps than by now."""
        now = self.step
        wait_for(lambda: self.step > now + 2, f"steps after {now}")

    @property
    def work(self) -> Path:
        """The job's directory."""
        return self.directory / ".jobctl" / self.name

    def begun(self) -> list[tuple[int, int]]:
        """Return node and generation of each time that a rank began, as Slurm's log of the job has it."""
        path = self.work / "slurm.out"
        said = path.read_text() if path.exists() else ""
        return [(int(node), int(g)) for node, g in re.findall(r"node (\d) from step \d+ generation (\d+)", said)]

    def told_to_end(self) -> list[tuple[int, int]]:
        """Return generation and node of each rank that got SIGTERM, and had the time to write that down."""
        names = [path.name.split("-") for path in (self.directory / "checkpoints").glob("told-*")]
        return sorted((int(generation), int(node)) for _, generation, node in names)

    def jobs(self) -> list[str]:
        """Return the jobs of this name that Slurm has, by their numbers."""
        return self.cluster.run("squeue", "-h", "-n", self.name, "-o", "%i").split()


@pytest.fixture
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SlurmJobs]:
    """A folder with a job, and `jobctl` beside Slurm's commands."""
    cluster = request.getfixturevalue(getattr(request, "param", "cluster"))
    environ = {**os.environ, "PATH": f"{cluster.bin}:{os.environ['PATH']}", "JOBCTL_STATE_DIR": str(tmp_path / "state")}
    yield SlurmJobs(cluster, tmp_path, environ)
    cluster.clear()


@pytest.fixture
def login(jobs: SlurmJobs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The SSH configuration that reaches the login node of the job's cluster as `login.test`."""
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("host", "user"):
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    Path("/run/sshd").mkdir(exist_ok=True)
    (port,) = free_ports(1)
    (folder / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nSetEnv PATH={jobs.cluster.bin}:/usr/bin:/bin\n"
    )
    config = folder / "config"
    config.write_text(
        f"Host login.test\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {folder}/user\n"
        f"  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking no\n"
    )
    sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", str(folder / "sshd")])
    try:
        wait_for(lambda: answers(port), "sshd")
        yield config
    finally:
        sshd.terminate()
        sshd.wait()


def answers(port: int) -> bool:
    """Say whether an SSH server listens at a port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as connection:
        return connection.recv(4) == b"SSH-"
    return False
