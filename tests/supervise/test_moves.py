"""Nodes that are to move: which hosts they are planned on when a host cannot take them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.executor import Done, Execution
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.errors import HostError, NotPrepared
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.spare_state import SpareState
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import AutonomyTerms, Generation, LastMove, Origin
from jobctl.jobspec.plan.types import HostRef, Plan
from jobctl.jobspec.planner.context import PlanError
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.supervise import actions, replan
from jobctl.jobspec.supervise.decisions import Repair, Restart
from jobctl.jobspec.supervise.loop import HostsChanged, Supervisor
from jobctl.jobspec.supervise.replan import moved_meanwhile
from tests.deploy.apply.test_executor import RUNNING, TWO, Now
from tests.tools.failures import lost

LOST = lost()
NO_CODE = HostError("s1", "not-prepared", "the code that runs is not there")


def moved(plan: Plan, source: object, inventory: object, moves: Mapping[int, str]) -> Plan:
    """The plan with nodes on other hosts, as the planner makes it."""
    return replace(
        plan,
        nodes=tuple(replace(n, host=HostRef(moves.get(n.index, n.host.name), n.host.address)) for n in plan.nodes),
    )


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """The supervisor of a job on h0 and h1; `s1` has not got what a node needs."""
    for module in (actions, replan):
        monkeypatch.setattr(module, "with_moves", moved)
    job = JobDir(tmp_path / "jobs" / "job")
    job.create()
    inventory = Inventory(tuple(Host(name) for name in ("h0", "h1", "s1", "s2")))
    job.remember({"reach": None, "job": "job"}, TWO, {"spec": {}})
    monkeypatch.setattr(JobDir, "inventory", lambda self: inventory)
    deployer: Any = SimpleNamespace(job=job, plan=TWO, inventory=inventory)
    deployer.provision = lambda plan, hosts: {host: NO_CODE for host in hosts if host == "s1"}
    deployer.spare_ids = lambda plan: {}
    return Supervisor(deployer, Now(), lambda text: None)


def homes(supervisor: Supervisor) -> tuple[dict[int, str], dict[int, str]]:
    """Where nodes are planned, as the supervisor and its successor have it."""
    plans = (supervisor.deployer.plan, supervisor.deployer.job.plan())
    first, second = ({node.index: node.host.name for node in plan.nodes} for plan in plans if plan is not None)
    return first, second


def told(supervisor: Supervisor) -> list[str]:
    """The moves that users are told of."""
    events = supervisor.deployer.job.root / "events.jsonl"
    lines = events.read_text().splitlines() if events.exists() else []
    return [line for line in lines if '"moved"' in line]


def test_a_node_stays_planned_where_it_is_if_the_other_host_cannot_take_it(supervisor: Supervisor) -> None:
    failed = supervisor.actions._move(Restart("h1 is lost", LOST, 0.0, moves={1: "s1"}), RUNNING)
    assert (failed, homes(supervisor), told(supervisor)) == ({"s1": NO_CODE}, ({0: "h0", 1: "h1"},) * 2, [])
    assert [supervisor.actions.unfit.hosts(now) for now in (604.0, 606.0)] == [{"s1"}, set()]


@pytest.mark.parametrize("code", ["no-route", "lost", "unreachable", "docker-down"])
def test_a_host_that_only_did_not_answer_is_soon_a_place_for_nodes_again(supervisor: Supervisor, code: str) -> None:
    supervisor.actions._tell_failed({"s2": HostError("s2", code, "it does not answer")})
    assert [supervisor.actions.unfit.hosts(now) for now in (14.0, 16.0)] == [{"s2"}, set()]


def test_hosts_that_come_while_the_supervisor_begins_are_not_missed(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows the hosts that it was started with, and that takes seconds: a spare of that moment would never be used."""
    supervisor._plan()
    more = Inventory((*supervisor.deployer.inventory.hosts, Host("s3")))  # type: ignore[union-attr]
    monkeypatch.setattr(JobDir, "inventory", lambda self: more)
    late = Supervisor(supervisor.deployer, Now(), lambda text: None)
    with pytest.raises(HostsChanged):
        late._plan()


def test_other_nodes_move_all_the_same(supervisor: Supervisor) -> None:
    supervisor.actions._move(Restart("h0 and h1 are lost", LOST, 0.0, moves={0: "s2", 1: "s1"}), RUNNING)
    assert homes(supervisor) == ({0: "s2", 1: "h1"},) * 2
    assert [("node 0 moves from h0 to s2" in line) for line in told(supervisor)] == [True]


def test_a_node_whose_start_failed_elsewhere_stays_where_it_is(supervisor: Supervisor) -> None:
    supervisor.actions._move(Restart("h1 is lost", LOST, 0.0, moves={1: "s2"}), RUNNING)
    supervisor.actions._tell_failed({"s2": HostError("s2", "cannot-start", "no")})
    supervisor.actions.return_moved(RUNNING, Repair(""))
    assert homes(supervisor) == ({0: "h0", 1: "h1"},) * 2
    assert "node 1 does not leave h1: s2 cannot take it" in told(supervisor)[-1]


def test_a_node_that_cannot_be_planned_where_it_is_ends_no_job(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*given: object) -> Plan:
        raise PlanError("no-room", "no room")

    supervisor.actions._move(Restart("h1 is lost", LOST, 0.0, moves={1: "s2"}), RUNNING)
    supervisor.actions._tell_failed({"s2": HostError("s2", "cannot-start", "no")})
    monkeypatch.setattr(actions, "with_moves", taken)
    supervisor.actions.return_moved(RUNNING, Repair(""))
    assert homes(supervisor) == ({0: "h0", 1: "s2"},) * 2


def test_a_host_that_a_node_cannot_be_planned_on_takes_none_and_ends_no_job(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has fewer devices, for example. Other nodes move all the same."""

    def refused(plan: Plan, source: object, inventory: object, moves: Mapping[int, str]) -> Plan:
        if "s3" in moves.values():
            raise PlanError("too-few-devices", "a node needs 8 devices of kind `gpu` and s3 has 4 for it")
        return moved(plan, source, inventory, moves)

    monkeypatch.setattr(replan, "with_moves", refused)
    loss = Restart("h0 and h1 are lost", LOST, 0.0, moves={0: "s2", 1: "s3"})
    failed = supervisor.actions._move(loss, RUNNING)
    assert (list(failed), homes(supervisor)) == (["s3"], ({0: "s2", 1: "h1"},) * 2)
    assert supervisor.actions.unfit.hosts(20.0) == {"s3"}
    lines = (supervisor.deployer.job.root / "events.jsonl").read_text().splitlines()
    said = [event["message"] for event in map(json.loads, lines) if event["event"] == "host-failed"]
    assert said == ["s3: a node needs 8 devices of kind `gpu` and s3 has 4 for it"]


def test_a_node_stays_away_from_a_host_that_is_silent_or_in_the_hosts_file_no_more(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor.actions._move(Restart("h1 is lost", LOST, 0.0, moves={1: "s2"}), RUNNING)
    supervisor.actions._tell_failed({"s2": HostError("s2", "cannot-start", "no")})
    supervisor.actions.return_moved(replace(RUNNING, unreachable={"h1": "not heard"}), Repair(""))
    monkeypatch.setattr(JobDir, "inventory", lambda self: Inventory((Host("h0"), Host("h1")), left=("h1",)))
    supervisor.actions.return_moved(RUNNING, Repair(""))
    assert homes(supervisor) == ({0: "h0", 1: "s2"},) * 2


def test_a_node_is_not_sent_back_to_a_host_that_cannot_take_it_either(supervisor: Supervisor) -> None:
    supervisor.actions._move(Restart("h1 is lost", LOST, 0.0, moves={1: "s2"}), RUNNING)
    for host in ("s2", "h1"):
        supervisor.actions._tell_failed({host: HostError(host, "cannot-start", "no")})
    supervisor.actions.return_moved(RUNNING, Repair(""))
    assert homes(supervisor) == ({0: "h0", 1: "s2"},) * 2


def test_a_host_that_is_measured_and_slow_takes_a_node_only_if_there_is_no_other(supervisor: Supervisor) -> None:
    """And then it is not measured again: the job would wait for it for ever."""
    measured: list[tuple[frozenset[str], str]] = []

    def preflight(plan: Plan, hosts: set[str], *, fitness: str) -> list[Finding]:
        measured.append((frozenset(hosts), fitness))
        slow = Finding("s2", "compute", "error", "21 % below the median", "slow-host", "look there")
        return [slow, Finding("s2", "clock", "warning", "ahead", "clock-skew", "set it")]

    deployer: Any = supervisor.deployer
    deployer.preflight = preflight
    deployer.plan = replace(TWO, fitness="quick")
    loss = Restart("h1 is lost", LOST, 0.0, moves={1: "s2"})
    assert [str(error) for error in supervisor.actions._move(loss, RUNNING).values()] == ["s2: 21 % below the median"]
    assert homes(supervisor)[0] == {0: "h0", 1: "h1"}
    assert supervisor.actions._move(loss, RUNNING) == {}
    assert homes(supervisor)[0] == {0: "h0", 1: "s2"}
    assert measured == [(frozenset({"s2"}), "quick")]
    lines = (supervisor.deployer.job.root / "events.jsonl").read_text().splitlines()
    (kept,) = (event for event in map(json.loads, lines) if event["event"] == "fitness")
    assert (kept["message"], [one["code"] for one in kept["findings"]]) == (
        "fitness (quick): 1 host measured, not fit: s2",
        ["slow-host"],
    )


def test_a_slow_node_whose_new_host_cannot_take_it_goes_on_where_it_is(supervisor: Supervisor) -> None:
    """Nothing has failed: a generation on the same hosts would only cost the work since the last checkpoint."""
    slow = lost(kind="straggler", reason="rank 1 is slow")
    decision = Restart("node 1 is a straggler", slow, 0.0, moves={0: "s2", 1: "s1"}, exclude=frozenset({"h1"}))
    outcome = supervisor.actions.apply(decision, RUNNING)
    assert (outcome.complete, outcome.generation) == (False, None)
    assert (homes(supervisor), told(supervisor)) == (({0: "h0", 1: "h1"},) * 2, [])
    assert supervisor.actions.unfit.hosts(20.0) == {"s1"}


def test_nothing_is_sent_to_a_host_where_a_launcher_waits(supervisor: Supervisor) -> None:
    deployer: Any = supervisor.deployer
    sent: list[frozenset[str]] = []
    deployer.provision = lambda plan, hosts: sent.append(hosts) or {}
    deployer.spare_ids = lambda plan: {"s1": ArtefactId("h"), "s2": ArtefactId("new")}
    waits = replace(RUNNING, spares=tuple(SpareState(host, "ready", ArtefactId("h"), 4000) for host in ("s1", "s2")))
    supervisor.actions._move(Restart("both are lost", LOST, 0.0, moves={0: "s2", 1: "s1"}), waits)
    assert (sent, homes(supervisor)[0]) == ([frozenset({"s2"})], {0: "s2", 1: "s1"})


def test_a_host_without_the_jobs_files_gets_them_before_a_node_is_started_there_again(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has removed them: without that its start would fail for ever."""
    deployer: Any = supervisor.deployer
    sent: list[list[str]] = []
    given: list[Mapping[str, object]] = []

    def carried_out(deployer: object, transition: object, clock: object, note: object, how: Execution) -> Done:
        given.append(how.failed)
        return Done(None, {"h1": NotPrepared("h1", "files of the job are not there any more")})

    deployer.spare_launcher_failures, deployer.provision = {}, lambda plan, hosts: sent.append(sorted(hosts)) or {}
    monkeypatch.setattr(actions, "wanted_state", lambda *given, **how: None)
    monkeypatch.setattr(actions, "execute", carried_out)
    steps = [Step("start", "node 1", "not running", 1, host="h1"), Step("start", "node 0", "not running", 0, host="h0")]
    monkeypatch.setattr(actions, "reconcile", lambda want, now: steps)
    for expected in ([], [["h1"]], [["h1"], ["h1"]]):
        supervisor.actions.apply(Repair("node 1 does not run"), RUNNING)
        assert sent == expected
    deployer.provision = lambda plan, hosts: dict.fromkeys(hosts, NO_CODE)
    supervisor.actions.apply(Repair("node 1 does not run"), RUNNING)
    assert given[-1] == {"h1": NO_CODE}


def test_nodes_are_planned_where_launchers_have_moved_them(supervisor: Supervisor) -> None:
    """Else they would be sent back to the hosts that they have left."""
    assert RUNNING.control.generation is not None
    members = tuple(replace(m, host="s1" if m.node else m.host) for m in RUNNING.control.generation.members)
    alone = AutonomyTerms(1, (), (1, 2), moved=LastMove(2, "id", 1))
    first = RUNNING.control.generation
    moved_there = replace(first, members=members, autonomy=alone)
    assert moved_meanwhile(TWO, moved_there, None) == {1: "s1"}
    for other in (
        replace(moved_there, autonomy=replace(alone, moved=None)),
        replace(first, autonomy=alone),
        first,
        None,
    ):
        assert moved_meanwhile(TWO, other, None) == {}
    now = replace(RUNNING, control=replace(RUNNING.control, generation=moved_there))
    supervisor.actions.follow_moves(now)
    assert homes(supervisor) == ({0: "h0", 1: "s1"},) * 2
    assert ["node 1 was moved from h1 to s1 by launchers" in line for line in told(supervisor)] == [True]
    supervisor.actions.follow_moves(now)
    assert len(told(supervisor)) == 1


def placed(homes: Mapping[int, str], origin: Origin | None) -> Generation:
    """The generation that runs, with nodes on these hosts, as somebody has ordered it."""
    assert RUNNING.control.generation is not None
    (first, *_), port = RUNNING.control.generation.members, 12000
    members = tuple(replace(first, node=node, host=host, port=port) for node, host in homes.items())
    return replace(RUNNING.control.generation, members=members, origin=origin)


def test_nodes_are_planned_where_another_machine_has_placed_them(supervisor: Supervisor) -> None:
    """It has brought the same job up, on other hosts: a supervisor that knows it as well goes on with those."""
    job = supervisor.deployer.job
    mine = job.standing(TWO).origin
    theirs = replace(mine, machine="laptop", id="another")
    there = placed({0: "s1", 1: "h0"}, theirs)
    for other in (
        placed({0: "s1", 1: "h0"}, mine),
        placed({0: "s1", 1: "h0"}, replace(theirs, plan="another")),
        placed({0: "s1", 1: "h0"}, None),
        placed({0: "h0", 1: "h1"}, theirs),
    ):
        assert moved_meanwhile(TWO, other, job.standing(TWO)) == {}
    assert moved_meanwhile(TWO, there, None) == {}
    now = replace(RUNNING, control=replace(RUNNING.control, generation=there))
    assert supervisor._has_to_follow(there) is True
    supervisor.actions.follow_moves(now)
    assert homes(supervisor) == ({0: "s1", 1: "h0"},) * 2
    assert ["node 0 was moved from h0 to s1 by a command on laptop" in line for line in told(supervisor)] == [
        True,
        False,
    ]
    # What this one moves next is newer than that.
    job.keep_plan(TWO)
    assert supervisor._has_to_follow(there) is False


def test_a_node_without_a_part_leaves_its_host_to_one_that_has(supervisor: Supervisor) -> None:
    standing = supervisor.deployer.job.standing(TWO)
    there = placed({0: "h1"}, replace(standing.origin, id="another"))
    assert moved_meanwhile(TWO, there, standing) == {0: "h1", 1: "h0"}
