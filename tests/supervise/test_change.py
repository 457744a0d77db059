"""A change that `up` could not make: when a supervisor makes it, on which hosts, and what becomes of it otherwise."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import hold
from jobctl.jobspec.deploy.store.processes import start_ticks
from jobctl.jobspec.plan.types import HostRef, Plan
from jobctl.jobspec.supervise.loop import Supervisor, is_over
from tests.deploy.test_executor import RUNNING, TWO, Now


def on(*hosts: str) -> Plan:
    """The plan of two nodes, on these hosts."""
    nodes = tuple(replace(n, host=HostRef(h, f"10.0.0.{n.index}")) for n, h in zip(TWO.nodes, hosts, strict=True))
    return replace(TWO, nodes=nodes)


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    made = JobDir(tmp_path / "jobs" / "job")
    made.create()
    made.remember({"reach": None, "job": "job"}, TWO, {"spec": {}})
    return made


def watching(job: JobDir, hosts: tuple[str, ...] = ("h0", "h1", "h2")) -> Supervisor:
    """A supervisor of the job, which these hosts may run."""
    deployer: Any = SimpleNamespace(
        job=job, plan=job.plan(), inventory=job.inventory(), where=lambda: hosts, free_hosts=lambda observed: ()
    )
    made = Supervisor(deployer, Now(), lambda text: None)
    made._plan()
    return made


def change_of(supervisor: Supervisor, observed: Observed = RUNNING) -> str | None:
    """What the supervisor knows of a change that can be made now."""
    feed: Any = SimpleNamespace(detector=SimpleNamespace(cleared=frozenset, too_few=bool))
    assert supervisor.deployer.plan is not None
    return supervisor._world(observed, supervisor.deployer.plan, feed, 5.0).change


def test_a_change_is_made_once_all_hosts_answer_that_it_was_prepared_on(job: JobDir) -> None:
    job.propose({"reach": None}, on("h0", "h2"), {})
    assert change_of(watching(job)) is None  # nobody has prepared it yet
    job.mark_prepared(["h0", "h2"])
    assert change_of(watching(job)) == "all hosts that the change needs answer"
    silent = replace(RUNNING, unreachable={"h2": "not heard"})
    assert change_of(watching(job), silent) is None


def test_a_change_is_left_to_the_command_that_is_at_work_on_it(job: JobDir) -> None:
    """It may take minutes until new nodes are ready; a supervisor that waits for the lock would do nothing else."""
    job.propose({"reach": None}, on("h0", "h2"), {})
    job.mark_prepared(["h0", "h2"])
    wait = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        command.stdout.readline()
        holder = {"command": "up", "pid": command.pid, "start_ticks": start_ticks(command.pid)}
        job.lock.write_text(json.dumps(holder))
        assert change_of(watching(job)) is None
        command.kill()
    assert change_of(watching(job)) == "all hosts that the change needs answer"
    with hold(job.lock, "supervisor"):  # as it decides once more before it acts
        assert change_of(watching(job)) == "all hosts that the change needs answer"


def test_a_change_that_a_host_was_not_prepared_for_is_left_to_a_person(job: JobDir) -> None:
    """It may lack the image, the code or its secrets."""
    job.propose({"reach": None}, on("h0", "h2"), {})
    job.mark_prepared(["h0"])
    assert change_of(watching(job)) is None


def test_nodes_go_where_the_change_has_them_unless_they_have_moved_since(job: JobDir) -> None:
    job.propose({"reach": None}, on("h0", "h2"), {})
    pending = job.pending()
    assert pending is not None
    assert watching(job).actions.places(pending) == {0: "h0", 1: "h2"}
    job.keep_plan(on("spare", "h1"))  # the supervisor has moved node 0
    assert watching(job).actions.places(pending) == {0: "spare", 1: "h2"}


def test_a_change_that_was_adopted_is_what_the_job_was_started_with(job: JobDir) -> None:
    job.propose({"reach": None, "job": "other"}, on("h0", "h2"), {"spec": {"name": "new"}})
    assert (job.plan(), job.is_changing()) == (TWO, True)
    job.adopt()
    assert (job.plan(), job.source(), job.is_changing()) == (on("h0", "h2"), {"spec": {"name": "new"}}, False)
    assert (job.about() or {})["job"] == "other"


@pytest.mark.parametrize("content", ["", "[]", '{"plan": 1}', '{"about": {}, "plan": null, "source": {}, "homes": []}'])
def test_a_change_of_another_version_is_left_alone(job: JobDir, content: str) -> None:
    (job.root / "pending.json").write_text(content)
    assert job.pending() is None
    job.adopt()
    assert job.plan() == TWO


def test_a_supervisor_whose_job_is_forgotten_ends_though_no_host_answers(job: JobDir) -> None:
    """It must not bring the folder back that somebody has removed."""
    silent = HostError("h0", "no-route", "no route to it")

    def hear() -> Observed:
        shutil.rmtree(job.root)
        raise silent

    feed: Any = SimpleNamespace(detector=None, observe=hear, wait=lambda seconds: None)
    supervisor = watching(job)
    assert supervisor.run(feed) == "the job is down"
    assert is_over(supervisor.deployer)
    assert not job.root.exists()
