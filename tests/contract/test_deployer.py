"""What every deployer does, held against this machine and against real hosts."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.clock import SystemClock
from jobctl.jobspec.deploy.apply.deployer import Deployer, FaultTarget, RuntimeInputs
from jobctl.jobspec.deploy.apply.executor import Transition, execute, wanted_state
from jobctl.jobspec.deploy.apply.reconcile import reconcile
from jobctl.jobspec.deploy.host import lock as hostlock
from jobctl.jobspec.deploy.host import watch
from jobctl.jobspec.deploy.model.control import JobResult, Ledger
from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions
from jobctl.jobspec.deploy.model.log_lines import LineSelection, Reader
from jobctl.jobspec.deploy.model.observed import phase
from jobctl.jobspec.deploy.store import lock
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import Locked, LockLost
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.targets.local.deployer import Local
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.spec.load import load_text
from tests.fleet.fleet import Fleet, fleet
from tests.fleet.jobs import COUNTER
from tests.fleet.machine import IMAGE, missing
from tests.fleet.podman import NEWER, fleet_of, missing_engine
from tests.tools.waiting import PATIENCE, eventually

SPEC = """\
name: contract
framework: torch
image: {image}
pull: never
command: [python3, -c, {script}]
per: node
nodes: 2
checkpoint: {checkpoints}
stop_grace_period: 2s
"""


def plan_of(directory: Path, target: str, hosts: tuple[Host, ...]) -> Plan:
    text = SPEC.format(image=IMAGE, script=json.dumps(COUNTER), checkpoints=directory / "checkpoints")
    loaded = load_text(directory / "job.yaml", text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    return planner.plan(loaded.spec, hosts, Context(target, str(directory), "me@here", "0.1.0"))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Fleet]:
    problem = missing()
    if problem:
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)
    with fleet(2) as made:
        yield made


def two_with(engine: str) -> Any:
    """Return a fixture: two hosts with an engine of a kind."""

    @pytest.fixture(scope="module", name=f"two_with_{engine}")
    def made(can_have_fleet: None) -> Iterator[Fleet]:
        if problem := missing_engine(engine):
            (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)
        with fleet_of(engine, 2) as hosts:
            yield hosts

    return made


two_with_podman, two_with_rootless = two_with("podman"), two_with("rootless")
two_with_docker26, two_with_containerd, two_with_podman5, two_with_rootless5 = map(two_with, NEWER)

# A deployer, and what its hosts are. A job on Podman lives in any run: fleet/test_podman.py.
HOSTS = {"compose": "two_hosts", "ssh": "two_hosts"}
if os.environ.get("JOBCTL_TEST_ENGINES") == "all":
    HOSTS |= {
        f"{target}-{engine}": f"two_with_{engine}"
        for engine in ("podman", "rootless", *NEWER)
        for target in ("compose", "ssh")
    }


@pytest.fixture(params=["local", *(pytest.param(name, marks=pytest.mark.long) for name in HOSTS)])
def deployer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployer]:
    job = JobDir(tmp_path / "state" / "jobs" / "contract")
    job.create()
    made: Deployer
    if request.param == "local":
        made = Local(job, plan_of(tmp_path, "local", ()))
    else:
        there, target = request.getfixturevalue(HOSTS[request.param]), request.param.partition("-")[0]
        hosts = tuple(Host(host.name, addr=host.address) for host in there.hosts)
        inventory = Inventory(hosts, SshOptions(there.ssh_config))
        shared = Path(tempfile.mkdtemp(dir=there.dir))  # where anybody may write who logs in there
        shared.chmod(0o777)
        made = Hosts(job, target, inventory, plan_of(shared, target, hosts))
        for module, name in (
            (watch, "MEET"),
            (watch, "RELEASE"),
            (hostlock, "FREE_TIMEOUT"),
        ):  # however slow the hosts are
            monkeypatch.setattr(module, name, PATIENCE)
    yield made
    assert made.take_down(1.0)[1] == {}
    assert not made.observe().nodes
    made.close()


def bring_up(deployer: Deployer) -> None:
    plan = deployer.plan
    assert plan is not None
    observed = deployer.observe()
    with deployer.lock("test"):
        assert deployer.prepare(plan, RuntimeInputs(dict(os.environ), {})) == {}
        want = wanted_state(deployer, plan, supervise=False)
        transition = Transition(want, observed, reconcile(want, observed))
        done = execute(deployer, transition, SystemClock(), lambda step: None)
        assert done.failed == {}
    eventually(lambda: phase(deployer.observe())[0] == "running")


def reading(deployer: Deployer, selection: LineSelection) -> Reader:
    reader = deployer.logs(selection)
    assert reader is not None
    return reader


def test_nothing_is_nothing(deployer: Deployer) -> None:
    observed = deployer.observe()
    assert (observed.nodes, observed.control.generation, observed.supervised) == ((), None, False)
    assert (deployer.logs(LineSelection()), deployer.has_files(), dict(deployer.failures)) == (None, False, {})


def test_what_was_brought_up_needs_no_steps_and_can_be_looked_into(
    deployer: Deployer, capfd: pytest.CaptureFixture[str]
) -> None:
    bring_up(deployer)
    plan = deployer.plan
    assert plan is not None
    observed = deployer.observe()
    assert [(node.node, node.state, node.alive, node.generation) for node in observed.nodes] == [
        (0, "running", True, 1),
        (1, "running", True, 1),
    ]
    assert reconcile(wanted_state(deployer, plan, supervise=False), observed) == ()

    eventually(lambda: len(list(reading(deployer, LineSelection()).lines())) == 2)
    lines = list(reading(deployer, LineSelection(node=1)).lines())
    assert [(line.node, line.rank, line.log, line.text) for line in lines] == [
        (1, 1, "workerlog.0", b"generation 1 from step 0")
    ]

    eventually(lambda: any(process.pid for process in deployer.observe().nodes[1].processes))
    assert deployer.enter(1, ["sh", "-c", "exit 9"]) == 9


def test_processes_stop_and_launchers_stay(deployer: Deployer) -> None:
    bring_up(deployer)
    with deployer.lock("test"):
        deployer.stop_processes(60.0)  # as long as it takes, at most
        observed = deployer.observe()
        assert [(node.state, node.alive) for node in observed.nodes] == [("exited", True)] * 2
        deployer.keep(type(observed.control.ledger)(1.0, result=JobResult("stopped", "asked for", 2.0)))
        deployer.finish(1.0)
    eventually(lambda: not any(node.alive for node in deployer.observe().nodes))  # an engine may start one once more
    assert phase(deployer.observe()) == ("stopped", "asked for")


def test_a_lock_is_held_by_one(deployer: Deployer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "WAIT", 0.0)
    monkeypatch.setattr(hostlock, "WAIT", 0.0)
    with deployer.lock("first"), pytest.raises(Locked, match="`first`"), deployer.lock("second"):
        pass
    with deployer.lock("first"), deployer.lock("second", break_it=True):
        pass


def test_who_has_lost_the_lock_changes_nothing(deployer: Deployer) -> None:
    plan = deployer.plan
    assert plan is not None
    generation = deployer.next_generation(plan, None, 0.0, plan.nodes)
    changes: tuple[Callable[[], object], ...] = (
        lambda: deployer.prepare(plan, RuntimeInputs({}, {})),
        lambda: deployer.apply(()),
        lambda: deployer.keep(Ledger(1.0)),
        lambda: deployer.begin(generation, Ledger(1.0)),
        lambda: deployer.stop_processes(1.0),
    )
    with deployer.lock("first"):
        lock.break_lock(deployer.job.lock)  # and others have what they need to go on
        for change in changes:
            with pytest.raises(LockLost, match="on this machine"):
                change()
    assert deployer.observe().control.generation is None


def test_one_supervisor_watches(deployer: Deployer) -> None:
    bring_up(deployer)
    with deployer.follow():
        assert deployer.observe().supervised
        with pytest.raises(Locked), deployer.follow():
            pass
    assert not deployer.observe().supervised


def test_a_taken_port_is_not_chosen(deployer: Deployer) -> None:
    plan = deployer.plan
    assert plan is not None
    first = deployer.next_generation(plan, None, 0.0, plan.nodes)
    second = deployer.next_generation(plan, first, 0.0, plan.nodes)
    assert (first.number, second.number, first.rendezvous.port != second.rendezvous.port) == (1, 2, True)


@pytest.mark.parametrize("what", ["process", "container"])
def test_what_is_struck_fails_and_who_follows_is_told(deployer: Deployer, what: FaultTarget) -> None:
    bring_up(deployer)
    with deployer.follow() as feed:
        eventually(lambda: [node.state for node in feed.observe().nodes] == ["running", "running"])
        eventually(lambda: set(feed.detector.progress) == {0, 1})
        eventually(lambda: any(process.pid for process in deployer.observe().nodes[1].processes))
        deployer.inject_fault(1, what)
        eventually(lambda: feed.observe().nodes[1].state == "failed")
        assert feed.detector.cleared() == frozenset()
        eventually(lambda: not feed.detector.too_few())  # as it may be said where this process has stood still
    observed = deployer.observe()
    assert [(node.state, node.alive) for node in observed.nodes] == [("running", True), ("failed", what == "process")]
