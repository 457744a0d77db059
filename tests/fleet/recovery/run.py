"""A job on two hosts that is disturbed: its result depends on its steps alone, and it tells of a node that trains twice."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.fleet.campaign.training import undisturbed
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.jobs import Jobs
from tests.fleet.machine import IMAGE
from tests.tools.waiting import eventually

STEPS, EVERY = 240, 10  # steps that each node makes at least, and between checkpoints
TIMEOUT = 10  # host_timeout in seconds: nothing may stand still that long
LONG = (f"host_timeout: {TIMEOUT}s", "host_timeout: 300s")  # change of a job that loses no host for good: anything may

# Its state depends on nothing but the step. A lock in the checkpoint directory, which all hosts share here, tells of
# two that train one node at the same time. It trains until there is no file `hold`, so whatever a test does happens to a
# job that makes progress, however slow the test is; `end-0` lets node 0 end all the same.
TRAIN = f"""\
import fcntl, math, os, sys, time
node, kept = os.environ["JOBCTL_NODE"], os.environ["JOBCTL_CHECKPOINT_DIR"]
mine = open(os.path.join(kept, "lock-" + node), "w")
try:
    fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(os.path.join(kept, "TWICE"), "a").write(node)
    sys.exit("another one trains this node")
path, step, loss = os.path.join(kept, "checkpoint-" + node), 0, 1.0
if os.path.exists(path):
    step, loss = int(open(path).read().split()[0]), float.fromhex(open(path).read().split()[1])
print("generation", os.environ["JOBCTL_GENERATION"], "of", os.environ["JOBCTL_NODES"], "from step", step, flush=True)
def there(name):
    return os.path.exists(os.path.join(kept, name))
def goes_on():
    return there("stop-" + node) or there("fail-" + node) or (there("hold") and not there("end-" + node)) or step < {STEPS}
while goes_on():
    if there("fail-" + node):
        os.unlink(os.path.join(kept, "fail-" + node))
        sys.exit(9)
    time.sleep(0.04)
    if there("stop-" + node):
        continue
    step, loss = step + 1, math.sin(loss * 1.7 + step)
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
    if step % {EVERY} == 0:
        try:
            with open(path + ".new", "w") as file:
                file.write("%d %s" % (step, loss.hex()))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            sys.exit("cannot save: %s" % error)
        os.replace(path + ".new", path)
with open(os.path.join(kept, "final-" + node), "w") as file:
    file.write("%d %s" % (step, loss.hex()))
"""
SPEC = f"""\
name: counter
framework: torch
image: {IMAGE}
pull: never
command: [python3, counter.py]
per: node
code: .
nodes: 2
checkpoint: {{checkpoints}}
stop_grace_period: 2s
recovery: {{{{host_timeout: {TIMEOUT}s, max_restarts: 9}}}}
"""


class Run(Jobs):
    """A job that runs on two hosts, with or without a third one to spare."""

    def __init__(
        self, directory: Path, made: Fleet, *, spare: bool = True, change: tuple[str, str] = ("\0", "")
    ) -> None:
        super().__init__(directory, made, SPEC.replace(*change))
        (self.code / "counter.py").write_text(TRAIN)
        lines = (self.code / "hosts.txt").read_text().splitlines()
        kept = [*lines[:2], *([lines[2] + " spare"] if spare else [])]
        (self.code / "hosts.txt").write_text("\n".join(kept) + "\n")

    def begin(self) -> None:
        """Bring it up, and return once it has trained past a checkpoint; only `ends_well` lets it end."""
        (self.checkpoints / "hold").touch()
        up = self.up()
        assert up.returncode == 0, up.stderr
        eventually(lambda: self.step() > 2 * EVERY)

    def runs(self, generation: int) -> None:
        """Wait until both nodes train in a generation, which is the newest; by what launchers report, read from outside."""

        def train() -> bool:
            paths = [next(host.home.glob(".jobctl/*/counter/node-*/report.json")) for host in self.fleet.hosts[:2]]
            reports = [json.loads(path.read_text()) for path in paths]
            assert all(report["generation"] <= generation for report in reports), reports
            return all((r["generation"], r["state"]) == (generation, "running") and r["progress"] for r in reports)

        eventually(train)

    def step(self) -> int:
        """The newest checkpoint of node 1."""
        path = self.checkpoints / "checkpoint-1"
        return int(path.read_text().split()[0]) if path.exists() else 0

    def ends_well(self, seconds: float = 300.0) -> dict[str, Any]:
        """Wait for the end, which must be as that of a run that nothing disturbed; return the last state."""
        (self.checkpoints / "hold").unlink(missing_ok=True)
        done = self.run("wait", "--timeout", f"{seconds:.0f}s", timeout=seconds + 30)
        assert done.returncode == 0, f"{done.stderr}\n{self.run('events').stdout}"
        for text in [(self.checkpoints / f"final-{node}").read_text() for node in (0, 1)]:
            steps = int(text.split()[0])
            assert (text, steps >= STEPS) == (undisturbed(steps), True)
        assert not (self.checkpoints / "TWICE").exists()
        return self.status()

    def resumed(self) -> list[int]:
        """From which steps node 1 has begun."""
        text = self.run("logs", "--node", "1").stdout
        return [int(line.rsplit(" ", 1)[1]) for line in text.splitlines() if "from step" in line]

    def events(self) -> list[dict[str, Any]]:
        """Return the events."""
        return [json.loads(line) for line in self.run("events", "-o", "json").stdout.splitlines()]


R = TypeVar("R", bound=Run)


def made_and_removed(kind: type[R], directory: Path, hosts: Fleet) -> Iterator[Callable[..., R]]:
    """Make jobs of a kind for a test; repair the hosts after it, and remove the jobs, of which nothing may be left."""
    made: list[R] = []

    def make(**how: Any) -> R:
        made.append(kind(directory, hosts, **how))
        return made[-1]

    yield make
    for host in hosts.hosts:
        host.plug_cable()
        if "sshd" not in host.processes:
            host.power_on()
    for one in made:
        print(one.run("events").stdout)  # pytest shows it where the test has failed
        down = one.run("down", *one.where)
        assert (down.returncode, one.containers(), one.files()) == (0, [[]] * len(hosts.hosts), []), down.stderr


def begins_with_a_spare(job: Run) -> bool:
    """Bring the job up with nobody watching, and down again if its launchers were not told of a spare: `up` does not wait long."""
    up = job.up("--no-supervise")
    assert up.returncode == 0, up.stderr
    if job.order()["autonomy"].get("spares"):  # left out where there are none
        return True
    assert job.run("down").returncode == 0
    return False


def trainer(host: Host) -> int:
    """Return the pid of the program in a host's container."""
    found = subprocess.run(["pgrep", "-f", "^python3 counter.py"], capture_output=True, text=True, check=True).stdout
    top = host.docker("top", "jobctl-counter-1", "-eo", "pid").split()
    return next(int(pid) for pid in found.split() if pid in top)
