"""A job on hosts that nobody watches: what happened is there for whoever looks next, and a job beyond help ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.recovery.run import LONG, Run, trainer
from tests.tools.waiting import eventually
from tests.tools.webhook import Webhook, served


@pytest.fixture
def run(tmp_path: Path, hosts_of: Callable[[int], Fleet]) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []
    fleet = hosts_of(2)

    def make(change: tuple[str, str] = LONG) -> Run:
        made.append(Run(tmp_path, fleet, spare=False, change=change))
        (made[-1].checkpoints / "hold").touch()
        up = made[-1].up("--no-supervise")
        assert up.returncode == 0, up.stderr
        return made[-1]

    yield make
    for host in fleet.hosts:
        if "sshd" not in host.processes:
            host.power_on()
    for one in made:
        print(one.run("events").stdout)
        down = one.run("down", *one.where)
        assert (down.returncode, one.containers(), one.files()) == (0, [[], []], []), down.stderr


class Elsewhere:
    """Another controller, which has never heard of the job."""

    def __init__(self, job: Run) -> None:
        self.job, self.state = job, job.directory / "elsewhere"

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        mine = self.job.environ["JOBCTL_STATE_DIR"]
        self.job.environ["JOBCTL_STATE_DIR"] = str(self.state)
        try:
            return self.job.run(args[0], "counter", *self.job.where, *args[1:])
        finally:
            self.job.environ["JOBCTL_STATE_DIR"] = mine

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run("events", "-o", "json").stdout.splitlines()]


def gist(events: list[dict[str, Any]]) -> list[tuple[str, int, object]]:
    """Kind, generation and author of what launchers have decided, in the order in which it is told."""
    kinds = ("generation", "failure", "generation-begun", "failed")
    return [(one["event"], one["generation"], one.get("by")) for one in events if one["event"] in kinds]


STORY = [
    ("generation", 1, "supervisor"),
    ("generation-begun", 1, "supervisor"),
    ("failure", 1, None),
    ("generation", 2, "launchers"),
    ("generation-begun", 2, "launchers"),
    ("failure", 2, None),
    ("generation", 3, "launchers"),
    ("generation-begun", 3, "launchers"),
]


def test_another_controller_sees_the_whole_story(run: Callable[..., Run]) -> None:
    """A process is killed, then a host loses power: whoever looks has each of that once, from launchers alone."""
    job = run()
    job.runs(1)
    os.kill(trainer(job.fleet[1]), signal.SIGKILL)
    job.runs(2)
    job.fleet[0].power_off()
    job.fleet[0].power_on()
    job.runs(3)
    other = Elsewhere(job)
    eventually(lambda: len(gist(other.events())) == len(STORY))
    found = other.events()
    assert sorted(gist(found)) == sorted(STORY)
    assert [one for one in gist(found) if one[0] != "generation-begun"] == [
        one for one in STORY if one[0] != "generation-begun"
    ]
    assert [one["time"] for one in found] == sorted(one["time"] for one in found)
    runs = [(one["node"], one["generation"]) for one in found if one["event"] == "node" and one["state"] == "running"]
    assert sorted(runs) == [(node, number) for node in (0, 1) for number in (1, 2, 3)]
    assert len({one["id"] for one in found}) == len(found)
    page = other.run("report", "-o", str(job.directory / "page.html"))
    assert (page.returncode, ", 2 failures, " in page.stderr) == (0, True), page.stderr
    assert job.up().returncode == 0  # a supervisor takes over; it tells nothing of that twice
    eventually(lambda: job.status()["supervised"])
    eventually(lambda: any(one["event"] == "supervisor-started" for one in job.events()))
    mine = gist(job.events())
    assert sorted(one for one in mine if one[0] != "generation") == sorted(
        one for one in STORY if one[0] != "generation"
    )
    assert [number for kind, number, _ in mine if kind == "generation"] == [2, 3]  # `up` has told of the first one
    job.ends_well()


@pytest.mark.release(
    "tests/local/test_nobody_watching.py::test_launchers_end_a_job_whose_restarts_are_used_up",
    "tests/launcher/recovery/test_started_again.py::test_a_launcher_that_is_started_again_after_the_end_keeps_how_it_ended",
)
def test_launchers_end_a_job_that_is_beyond_help(run: Callable[..., Run]) -> None:
    """A rule says so. What engines start after that stays idle, and every controller says why."""
    job = run((LONG[0], LONG[1] + ", rules: [{{exit: 9, do: fail}}]"))
    job.runs(1)
    (job.checkpoints / "fail-1").touch()
    wait = job.run("wait", "--timeout", "300s")
    reason = "node 1: rank 1 exited with code 9; a rule says not to retry here"
    assert (wait.returncode, reason in wait.stderr) == (1, True), wait.stderr
    job.fleet[1].power_off()
    job.fleet[1].power_on()
    eventually(lambda: job.containers() == [["jobctl-counter-0"], ["jobctl-counter-1"]])
    eventually(lambda: [one["reachable"] for one in job.status()["nodes"]] == [True, True])
    other = Elsewhere(job)
    state = json.loads(other.run("status", "-o", "json").stdout)
    assert (state["phase"], state["reason"], state["generation"]) == ("failed", reason, 1)
    assert [node["state"] for node in state["nodes"]] == ["exited", "failed"]
    for node, host in enumerate(job.fleet.hosts[:2]):
        assert "counter.py" not in host.docker("top", f"jobctl-counter-{node}", "-eo", "pid,args")
    assert gist(other.events())[-1] == ("failed", 1, None)
    assert job.up("--no-supervise").returncode == 0
    job.runs(2)
    assert job.ends_well()["generation"] == 2


NOTIFY = "notify: [{{on: [failed, recovered, waiting, succeeded], webhook: HOOK, from_hosts: true}}]\n"


def test_launchers_in_containers_tell_people(jobs: Jobs) -> None:
    """By a webhook whose URL lies on each host in a file of its user; `down` leaves nothing of it there."""
    with served(Webhook(jobs.fleet.outside)) as hook:
        jobs.spec(SPEC + NOTIFY)
        jobs.environ["HOOK"] = hook.url
        assert jobs.up("--no-supervise").returncode == 0
        eventually(lambda: jobs.all_train(1, generation=1))
        kept = [(path.name, path.stat().st_mode & 0o777) for path in holders(jobs)]
        assert kept == [("notify.json", 0o600)] * len(jobs.fleet.hosts)
        assert not any("very-secret" in host.docker("inspect", *host.containers()) for host in jobs.fleet.hosts)
        os.kill(trainer(jobs.fleet[1]), signal.SIGKILL)
        eventually(lambda: jobs.all_train(1, generation=2) and hook.messages)
        (message,) = told_by(hook)
        assert (message["event"], message["nodes"], message["generation"]) == ("recovered", [1], 2)
        jobs.ok("down")
        assert (holders(jobs), told_by(hook)) == ([], [message])


def told_by(hook: Webhook) -> list[dict[str, Any]]:
    """Return the messages, each once: a launcher that does not hear the other one tells as well, and one tries again."""
    return list({message["id"]: message for message in reversed(hook.messages)}.values())[::-1]


def holders(jobs: Jobs) -> list[Path]:
    """Return the files on hosts that have the URL of the webhook; others are replaced while one looks."""
    found = []
    for path in (path for host in jobs.fleet.hosts for path in host.home.rglob("*") if path.is_file()):
        with contextlib.suppress(FileNotFoundError):
            found += [path] if b"very-secret" in path.read_bytes() else []
    return found
