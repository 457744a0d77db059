"""`jobctl` as a user calls it, against a fleet."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fleet.fleet import Fleet
from tests.fleet.machine import IMAGE
from tests.tools import commands
from tests.tools.waiting import eventually

# Counts until it is told to end; goes on from its checkpoint, and fails when told to.
COUNTER = """\
import os, sys, time
node, kept = os.environ["JOBCTL_NODE"], os.environ["JOBCTL_CHECKPOINT_DIR"]
path = os.path.join(kept, "step-" + node)
step = int(open(path).read()) if os.path.exists(path) else 0
print("generation", os.environ["JOBCTL_GENERATION"], "from step", step, flush=True)
while not os.path.exists(os.path.join(kept, "end")):
    time.sleep(0.05)
    step += 1
    with open(path + ".new", "w") as file:
        file.write(str(step))
    os.replace(path + ".new", path)
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
    if os.path.exists(os.path.join(kept, "fail-" + node)):
        os.unlink(os.path.join(kept, "fail-" + node))
        sys.exit("cannot go on")
print("ends at step", step, flush=True)
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
"""


def read(path: Path) -> list[dict[str, Any]]:
    """Return the JSON in a file, in a list that is empty if there is none: some are removed while one looks."""
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(path.read_text())]
    return []


class Jobs:
    """A folder with a job for a fleet, and a state directory of its own."""

    def __init__(self, directory: Path, fleet: Fleet, spec: str = SPEC) -> None:
        self.directory, self.fleet = directory, fleet
        self.code = directory / "code"
        self.checkpoints = directory / "checkpoints"
        for folder in (self.code, self.checkpoints):
            folder.mkdir(parents=True)
        (self.code / "counter.py").write_text(COUNTER)
        self.spec(spec)
        fleet.hosts_file(self.code / "hosts.txt")
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("JOBCTL_")},
            "JOBCTL_STATE_DIR": str(directory / "state"),
            "HOME": str(directory),
            "NO_COLOR": "1",
        }

    def spec(self, text: str) -> None:
        """Write the job's spec."""
        (self.code / "job.yaml").write_text(text.format(checkpoints=self.checkpoints))

    def popen(self, *args: str, **how: Any) -> subprocess.Popen[str]:
        """Start `jobctl` with pipes, or with other streams, and return at once."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        argv = [sys.executable, "-m", "jobctl", *args]
        return subprocess.Popen(argv, cwd=self.code, env=self.environ, **{**pipes, **how})

    def run(self, *args: str, timeout: float = 400.0) -> subprocess.CompletedProcess[str]:
        """Run `jobctl` to its end."""
        return commands.run(args, self.code, self.environ, timeout)

    def command(self, *args: str, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """Run `jobctl`, which has to exit with one of `codes`."""
        done = self.run(*args)
        assert done.returncode in codes, (args, done.returncode, done.stdout, done.stderr)
        return done

    def change_what_runs(self, *args: str) -> None:
        """Run `restart` or `scale`. If another machine has changed the job, it exits with 5, and says to run `up` first."""
        if self.command(*args, codes=(0, 5)).returncode == 5:
            self.command("up", *self.where)
            self.command(*args)

    def ok(self, *args: str) -> str:
        """Run `jobctl`, which must exit with 0, and return what it printed to stdout."""
        done = self.run(*args)
        assert done.returncode == 0, f"{done.stderr}\n{self.run('events').stdout}"
        return done.stdout

    def up(self, *args: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Bring the job up on the fleet; `check`: after the preflight, which takes as long again."""
        return self.run("up", *self.where, *([] if check else ["--skip-check"]), *args)

    def start(self, *args: str, **environ: str) -> commands.Command:
        """Start `jobctl`, which nobody talks to, and return at once; `environ` are further variables of it."""
        return commands.Command(args, self.code, {**self.environ, **environ})

    def begin_up(self) -> commands.Command:
        """Start `jobctl up` on the fleet, without the preflight, and return at once."""
        return self.start("up", *self.where, "--skip-check")

    @property
    def where(self) -> tuple[str, ...]:
        """The options that name the hosts."""
        return "--hosts", "hosts.txt", "--ssh-config", str(self.fleet.ssh_config)

    # Looking from outside takes a thousandth of the time of a command that connects to all hosts.

    @property
    def name(self) -> str:
        """The job's name, as its spec has it."""
        lines = (self.code / "job.yaml").read_text().splitlines()
        return next(line.split()[1] for line in lines if line.startswith("name:"))

    def order(self) -> dict[str, Any]:
        """Return the newest generation that lies on a host: launchers keep one that they agreed on in their reports."""
        folders = [folder for host in self.fleet.hosts for folder in (host.home / ".jobctl").glob(f"*/{self.name}")]
        given = [order for folder in folders for order in read(folder / "run/control.json")]
        reports = [path for folder in folders for path in folder.glob("*/report.json")]
        agreed = [order for path in reports for report in read(path) if (order := report.get("order"))]
        return max([*given, *agreed], key=lambda one: int(one["number"]), default={"number": 0, "members": []})

    def reports(self) -> list[dict[str, Any]]:
        """Return what the launchers of the newest generation report, each on the host where its node is, once all do."""
        homes = {host.name: host.home for host in self.fleet.hosts}
        paths = [
            homes[member["host"]] / f".jobctl/{member['host']}/{self.name}/node-{member['node']}/report.json"
            for member in self.order()["members"]
        ]
        found = [report for path in paths for report in read(path)]
        return found if len(found) == len(paths) else []

    def all_train(self, step: int = 0, generation: int | None = None, after: int = 0) -> bool:
        """Say whether all nodes run a generation (that one, or one after `after`), and trainers have got to `step`."""
        number, reports = self.order()["number"], self.reports()
        return (
            number > after
            and generation in (None, number)
            and reports != []
            and all((r["state"], r.get("generation")) == ("running", number) for r in reports)
            and all((r["progress"] or 0) >= step for r in reports if r["role"] == "trainer")
        )

    def trains(self, step: int = 0, generation: int | None = None, after: int = 0) -> dict[str, Any]:
        """Wait until `all_train`, and return the status, by which the job runs."""

        def state() -> dict[str, Any] | None:
            found = self.status()
            right = found["generation"] > after and generation in (None, found["generation"])
            return found if right and found["phase"] == "running" else None

        try:
            eventually(lambda: self.all_train(step, generation, after), 400)
            return eventually(state) or {}
        except AssertionError:
            story = [self.run(*command).stdout for command in (("events",), ("logs", "--tail", "20"))]
            raise AssertionError("\n".join([str(self.status()), *story])) from None

    def happened(self, event: str, state: str = "state") -> list[dict[str, Any]]:
        """Return the events of a kind, as they are written down in a state directory."""
        path = self.directory / state / "jobs" / self.name / "events.jsonl"
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # somebody may be writing the last line
        return [one for one in map(json.loads, whole.splitlines()) if one["event"] == event]

    def tells(self, words: str) -> None:
        """Wait until an event says so, and see that `jobctl events` prints it."""
        path = self.directory / "state/jobs" / self.name / "events.jsonl"
        eventually(lambda: path.exists() and words in path.read_text())
        assert words in self.run("events").stdout

    def status(self) -> dict[str, Any]:
        """Return `status -o json`, whatever it exits with."""
        state: dict[str, Any] = json.loads(self.run("status", "-o", "json").stdout)
        return state

    def phase(self) -> str:
        """Return the job's phase."""
        return str(self.status()["phase"])

    def supervisor_pid(self) -> int:
        """Return the pid of the supervisor."""
        holder = json.loads((self.directory / "state/jobs" / self.name / "supervisor.lock").read_text())
        return int(holder["pid"])

    def signal(self, node: int, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process of a node's container, by the pid that it has there."""
        self.ok("exec", "--node", str(node), "--", "python3", "-c", f"import os; os.kill({pid}, {int(number)})")

    def containers(self) -> list[list[str]]:
        """Return the names of the containers on each host whose engine runs, asked from outside."""
        return [host.containers() for host in self.fleet.hosts if "dockerd" in host.processes]

    def files(self) -> list[Path]:
        """Return all that is left below the hosts' work directories."""
        return [path for host in self.fleet.hosts for path in (host.home / ".jobctl").glob("**/*")]

    def steps(self, *args: str) -> list[str]:
        """Return the steps of `plan`."""
        return self.run("plan", *args).stdout.splitlines()

    def end(self) -> None:
        """Let the job end well."""
        (self.checkpoints / "end").touch()


class Elsewhere(Jobs):
    """The same folder, with another state directory."""

    def __init__(self, jobs: Jobs, state: Path) -> None:
        self.directory, self.fleet, self.code, self.checkpoints = (
            jobs.directory,
            jobs.fleet,
            jobs.code,
            jobs.checkpoints,
        )
        self.environ = {**jobs.environ, "JOBCTL_STATE_DIR": str(state)}
