"""A change that `up` could not make: when a supervisor makes it, on which hosts, and what becomes of it otherwise."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.asked import Asked, asked_of, request_record
from jobctl.jobspec.deploy.apply.executor import Fresh
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import hold, read_holder
from jobctl.jobspec.deploy.store.processes import start_ticks
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.plan.types import HostRef, Plan
from jobctl.jobspec.supervise.actions import ActionOutcome
from jobctl.jobspec.supervise.decisions import Change, Decision, Grow, Restart
from jobctl.jobspec.supervise.loop import GIVE_WAY, Supervisor, is_over
from tests.deploy.apply.test_executor import RUNNING, TWO, Now, World

from .clocks import Passing


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
        job=job, plan=job.plan(), inventory=job.inventory(), places=lambda: hosts, free_hosts=lambda observed: ()
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


@pytest.mark.parametrize("name", ["lock", "waiting.lock"])
def test_a_change_is_left_to_the_command_that_is_at_work_on_it(job: JobDir, name: str) -> None:
    """It may take minutes until new nodes are ready, and it does not keep the lock until then."""
    job.propose({"reach": None}, on("h0", "h2"), {})
    job.mark_prepared(["h0", "h2"])
    wait = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        command.stdout.readline()
        holder = {"command": "up", "pid": command.pid, "start_ticks": start_ticks(command.pid)}
        (job.root / name).write_text(json.dumps(holder))
        assert change_of(watching(job)) is None
        command.kill()
    assert change_of(watching(job)) == "all hosts that the change needs answer"
    with hold(job.root / name, "supervisor"):  # as it decides once more before it acts
        assert change_of(watching(job)) == "all hosts that the change needs answer"


def test_after_a_failure_a_command_that_waits_goes_first_but_not_for_ever(job: JobDir) -> None:
    """It begins the next generation with the nodes that join; two at once would end each other's."""
    supervisor, clock = watching(job), Passing()
    supervisor.clock = clock
    with ExitStack() as command:
        command.enter_context(hold(job.waiting_lock, "up"))
        began = clock.now()
        supervisor._give_way()
        assert GIVE_WAY <= clock.now() - began < GIVE_WAY + 1.0
        clock.sleep = lambda seconds: command.close()  # type: ignore[method-assign]
        began = clock.now()
        supervisor._give_way()
        assert clock.now() == began


def test_a_node_that_gets_ready_for_a_change_is_left_alone_when_all_begin_again(job: JobDir) -> None:
    """Its files would go with it, and the command that waits for it could not start it any more."""
    third = replace(TWO.nodes[0], index=2, host=HostRef("h2", "10.0.0.2"))
    job.propose({"reach": None}, replace(TWO, nodes=(*TWO.nodes, third)), {})
    job.mark_prepared(["h0", "h1", "h2"])
    actions, world = watching(job).actions, World()
    deployer: Any = actions.deployer
    for name in ("engines", "stop_processes", "apply", "next_generation", "idle_spares", "begin"):
        setattr(deployer, name, getattr(world, name))
    old = dict.fromkeys((0, 1), ArtefactId("old"))
    deployer.image, deployer.spare_launcher_failures, deployer.provision = None, {}, lambda plan, hosts: {}
    deployer.ids, deployer.service_ids, deployer.spare_ids = lambda plan: old, lambda plan: {}, lambda plan: {}
    joins = ObservedNode(2, "trainer", "h2", "starting", old[0], launcher=1)
    seen = replace(RUNNING, nodes=(replace(RUNNING.nodes[0], state="failed", reason="no"), RUNNING.nodes[1], joins))
    failure = Failure(1, 4.0, 0, "h0", 0, 1, "exit", 7, 60.0)
    assert actions.apply(Restart("node 0: no", failure, 0.0), seen).complete
    assert world.done == ["begin 2"]


@pytest.mark.parametrize("adopted", [False, True], ids=["not begun", "half done"])
def test_what_up_was_asked_besides_is_done_by_the_supervisor_that_completes_it(job: JobDir, adopted: bool) -> None:
    """Once: what begins after that is no new run, and replaces nothing."""
    run = Fresh("job-2", "/c/fresh-1")
    job.propose({"reach": None, "job": "job"}, TWO, {})
    job.mark_prepared(["h0", "h1"], request_record(Asked(run, recreate=True), RUNNING.control.generation))
    if adopted:
        job.adopt()
    actions, world = watching(job).actions, World()
    deployer: Any = actions.deployer
    for name in ("engines", "stop_processes", "apply", "next_generation", "idle_spares", "begin", "observe"):
        setattr(deployer, name, getattr(world, name))
    old = dict.fromkeys((0, 1), ArtefactId("old"))
    deployer.image, deployer.spare_launcher_failures, deployer.provision = None, {}, lambda plan, hosts: {}
    deployer.ids, deployer.service_ids, deployer.spare_ids = lambda plan: old, lambda plan: {}, lambda plan: {}
    begun = actions.apply(Change("a command stopped the job"), RUNNING).generation
    assert begun is not None
    assert (begun.run_id, begun.checkpoint_dir) == (run.run_id, run.checkpoint_dir)
    assert [word for word in world.done if "engines" not in word] == [
        *("pause", "replace node 0 on h0", "replace node 1 on h1", "begin 2")
    ]
    assert asked_of(job.job_record(), begun, waits=False) == Asked()


def test_nodes_that_join_are_started_and_the_generation_goes_on(job: JobDir) -> None:
    supervisor, world = watching(job), World()
    actions, deployer = supervisor.actions, supervisor.deployer
    deployer.apply, deployer.provision = world.apply, lambda plan, hosts: {}  # type: ignore[method-assign,assignment]
    alone = replace(RUNNING, nodes=RUNNING.nodes[:1])
    grow = Grow("there is a host for node 1 again", frozenset({"h1"}), frozenset({1}))
    assert actions.apply(grow, alone) == ActionOutcome(complete=True)
    assert world.done == ["start node 1 on h1"]
    assert actions.joining.since.keys() == {1}
    world.broken = {"h1": HostError("h1", "cannot-start", "no")}
    actions.joining.since.clear()
    assert actions.apply(grow, alone) == ActionOutcome(complete=False)
    assert (actions.joining.since, set(actions.unfit.hosts(5.0))) == ({}, {"h1"})


def test_a_change_that_a_host_was_not_prepared_for_is_left_to_a_person(job: JobDir) -> None:
    """It may lack the image, the code or its secrets."""
    job.propose({"reach": None}, on("h0", "h2"), {})
    job.mark_prepared(["h0"])
    assert change_of(watching(job)) is None


def test_a_job_that_nothing_can_begin_again_ends_before_a_command_has_its_turn(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waited for the lock would take launchers for alive that end a moment later."""
    supervisor, ended = watching(job), []
    paused = replace(RUNNING.control, generation=first_generation(TWO).told("stop", 5.0))
    seen = replace(RUNNING, control=paused)

    def refuse(decision: Decision, now: Observed) -> ActionOutcome:
        raise DeployError("port 29500 of `rendezvous.port` is taken", "choose another")

    supervisor.deployer.lock = lambda command: hold(job.lock, command)  # type: ignore[method-assign]
    supervisor.deployer.observe = lambda: seen  # type: ignore[method-assign]
    monkeypatch.setattr(supervisor, "_decide", lambda observed, feed: Change("a command was killed"))
    monkeypatch.setattr(supervisor.actions, "apply", refuse)
    monkeypatch.setattr(
        supervisor.actions, "end", lambda *said: ended.append((*said, read_holder(job.lock).get("command")))
    )
    supervisor._act(Change("a command was killed"), seen, SimpleNamespace(refresh=lambda: None))
    why = "cannot restart: port 29500 of `rendezvous.port` is taken. choose another"
    assert ended == [("failed", why, "supervisor")]
    assert read_holder(job.lock) == {}


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
    assert (job.job_record() or {})["job"] == "other"


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

    feed: Any = SimpleNamespace(detector=FailureDetector(float, "me"), observe=hear, wait=lambda seconds: None)
    supervisor = watching(job)
    assert supervisor.run(feed) == "the job is down"
    assert is_over(supervisor.deployer)
    assert not job.root.exists()
