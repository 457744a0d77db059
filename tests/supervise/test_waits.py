"""For how long a supervisor waits for hosts, on its own loop: what it tries meanwhile in vain ends no wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import Ledger
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import Locked
from jobctl.jobspec.launcher.restart_policy import LONGEST_DELAY, LONGEST_OVERDUE
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner.context import PlanError
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.supervise import actions, replan
from jobctl.jobspec.supervise.loop import POLL_INTERVAL, Supervisor
from jobctl.jobspec.supervise.timers import AWAY_FOR
from tests.deploy.apply.test_executor import BROKEN, RUNNING, TWO, World
from tests.tools.failures import dead_launcher, failed

from .clocks import Passing
from .test_moves import moved

TIMEOUT = 60.0  # `recovery.wait_timeout`
H1_LOST = replace(
    RUNNING,
    nodes=(RUNNING.nodes[0], replace(RUNNING.nodes[1], state="lost", reachable=False, launcher=None)),
    unreachable={"h1": "not heard"},
)


class Watch:
    """A supervisor of a job on h0 and h1 with a spare host, s1, that takes no node, and a clock that it moves itself."""

    def __init__(self, path: Path) -> None:
        self.clock, self.world, self.seen, self.cleared = Passing(), World(), RUNNING, frozenset[int]()
        self.ended: list[str] = []
        self.tried: list[float] = []
        self.all_run: list[bool] = []  # what the loop has said of the nodes with each turn
        self.busy = False  # with what may take long
        recovery = replace(TWO.recovery, on_host_loss="replace", wait_timeout=TIMEOUT, max_restarts=9)
        job = JobDir(path / "jobs" / "job")
        job.create()
        job.remember({"reach": None, "job": "job"}, replace(TWO, recovery=recovery), {"spec": {}})
        inventory = Inventory(tuple(Host(name) for name in ("h0", "h1", "s1")))
        deployer: Any = SimpleNamespace(
            job=job, plan=job.plan(), inventory=inventory, image=None, spare_launcher_failures={}
        )
        for name in ("engines", "stop_processes", "apply", "next_generation", "idle_spares", "begin"):
            setattr(deployer, name, getattr(self.world, name))
        deployer.ids = lambda plan: dict.fromkeys((0, 1), ArtefactId("old"))
        deployer.spares = deployer.service_ids = deployer.spare_ids = lambda plan: {}
        deployer.lock, deployer.observe = lambda command: nullcontext(), lambda: self.seen
        deployer.places, deployer.free_hosts = lambda: ("h0", "h1", "s1"), lambda observed: ("s1",)
        deployer.events, deployer.provision = lambda: SimpleNamespace(gather=lambda: None), self.refuse
        deployer.keep = self.keep
        self.supervisor = Supervisor(deployer, self.clock, lambda text: None)
        self.supervisor.actions.inventory = job.inventory()
        detector = SimpleNamespace(cleared=lambda: self.cleared, too_few=bool, expect=lambda generation: None)
        detector.turned, detector.at_length = self.turned, self.at_length
        self.feed: Any = SimpleNamespace(detector=detector, observe=lambda: self.seen, refresh=lambda: None)

    def refuse(self, plan: Plan, hosts: frozenset[str]) -> dict[str, HostError]:
        """s1 has no room for what a node needs."""
        self.tried += [self.clock.time] if "s1" in hosts else []
        return {host: HostError(host, "no-space", "its disk is full") for host in hosts if host == "s1"}

    def keep(self, ledger: Ledger) -> None:
        self.seen = replace(self.seen, control=replace(self.seen.control, ledger=ledger))

    def turned(self, *, all_run: bool) -> None:
        self.all_run.append(all_run)

    @contextmanager
    def at_length(self) -> Iterator[None]:
        self.busy = True
        yield
        self.busy = False

    def look(self, seconds: float) -> None:
        """Look as often as a supervisor does in so many seconds, or until it ends the job."""
        until = self.clock.time + seconds
        while self.clock.time < until and not self.ended:
            self.feed.detector.generation = self.seen.control.generation
            self.supervisor._look(self.feed)
            self.clock.time += POLL_INTERVAL

    def told(self, event: str) -> list[str]:
        return [one["message"] for one in events.read(self.supervisor.deployer.job.events)[0] if one["event"] == event]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch(tmp_path)
    inventory = made.supervisor.deployer.inventory
    monkeypatch.setattr(JobDir, "inventory", lambda self: inventory)
    made.supervisor.actions.inventory = inventory
    for module in (actions, replan):
        monkeypatch.setattr(module, "with_moves", moved)
    monkeypatch.setattr(made.supervisor.actions, "end", lambda phase, reason: made.ended.append(reason))
    return made


def give_up(watch: Watch, why: str = "node 1: h1 is not heard") -> float:
    """For how long the supervisor has waited until it ends the job."""
    began = watch.clock.time
    watch.look(3 * TIMEOUT)
    assert watch.ended == [f"{why}; waited for longer than `recovery.wait_timeout` (60 s)"]
    return watch.clock.time - began


def test_a_job_ends_that_has_waited_as_long_as_the_spec_says(watch: Watch) -> None:
    watch.seen, watch.cleared = H1_LOST, frozenset({1})
    watch.supervisor.deployer.free_hosts = lambda observed: ()  # type: ignore[method-assign]
    assert TIMEOUT <= give_up(watch) <= TIMEOUT + 2.0


def test_a_clock_that_is_wrong_for_a_moment_does_not_end_the_time_of_a_job(watch: Watch) -> None:
    recovery = replace(TWO.recovery, max_duration=5000.0)
    watch.supervisor.deployer.job.keep_plan(replace(TWO, recovery=recovery))
    watch.look(5.0)
    for wrong in (1e6, -1e6):  # set ahead, and back
        watch.clock.time += wrong
        watch.look(0.9 * LONGEST_OVERDUE)
    assert watch.ended == []
    watch.clock.time = began = 5002.0
    watch.look(2 * LONGEST_OVERDUE)
    assert watch.ended == ["ran longer than `recovery.max_duration` (5000 s)"]
    assert LONGEST_OVERDUE <= watch.clock.time - began <= LONGEST_OVERDUE + 2.0


def test_a_spare_that_is_tried_in_vain_ends_no_wait(watch: Watch) -> None:
    watch.seen, watch.cleared = H1_LOST, frozenset({1})
    assert TIMEOUT <= give_up(watch) <= TIMEOUT + 2.0
    assert len(watch.tried) >= TIMEOUT // AWAY_FOR
    assert watch.told("host-failed") == ["s1: its disk is full"]


def test_a_job_waits_for_its_host_where_a_node_cannot_be_planned_on_the_spare(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object) -> Plan:
        raise PlanError("unequal-nodes", "s1 has 4, h0 8")

    monkeypatch.setattr(replan, "with_moves", refused)
    watch.seen, watch.cleared = H1_LOST, frozenset({1})
    watch.look(0.5 * TIMEOUT)
    assert (watch.ended, watch.told("host-failed")) == ([], ["s1: s1 has 4, h0 8"])
    assert watch.told("waiting") == [
        "node 1: h1 is not heard; there is no other host for it (s1 could not take a node)"
    ]


def test_a_node_that_can_start_nowhere_is_not_tried_for_ever(watch: Watch) -> None:
    watch.world.broken = {"h1": BROKEN}
    killed = replace(RUNNING.nodes[1], state="failed", launcher=None, failure=dead_launcher(generation=1, at=990.0))
    watch.seen = replace(RUNNING, nodes=(RUNNING.nodes[0], killed))
    assert TIMEOUT <= give_up(watch, "h1: no") <= TIMEOUT + 10.0
    assert watch.told("host-failed") == ["h1: no", "s1: its disk is full"]


def test_a_supervisor_that_can_keep_nothing_leaves_all_to_the_launchers_meanwhile(watch: Watch) -> None:
    """Its disk is full when a process has failed: launchers that it answered would wait for it."""
    heard: list[bool] = []

    def full(*given: object) -> dict[str, DeployError]:
        raise OSError(28, "No space left on device", "newest.json")

    class Enough(Exception):
        pass

    def wait(seconds: float) -> None:
        heard.append(watch.feed.detector.silent)
        if len(heard) == 3:
            watch.supervisor.deployer.begin = watch.world.begin  # type: ignore[method-assign]
        if len(heard) == 4:
            raise Enough

    watch.seen = replace(RUNNING, nodes=(RUNNING.nodes[0], replace(RUNNING.nodes[1], state="failed", failure=failed())))
    watch.feed.detector.generation = watch.seen.control.generation
    watch.feed.detector.silent, watch.feed.wait = False, wait
    watch.supervisor.deployer.begin = full  # type: ignore[method-assign]
    with pytest.raises(Enough):
        watch.supervisor.run(watch.feed)
    assert heard == [True, True, True, False]
    assert watch.told("waiting") == ["cannot act: [Errno 28] No space left on device: 'newest.json'"]


def test_a_supervisor_that_can_read_nothing_leaves_nodes_that_run_their_leases(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launchers that do not hear each other have no other ones."""

    class Enough(Exception):
        pass

    def unreadable(job: JobDir) -> object:
        raise OSError(5, "Input/output error", "plan.json")

    def wait(seconds: float) -> None:
        raise Enough

    watch.feed.detector.generation = watch.seen.control.generation
    watch.feed.detector.silent, watch.feed.wait = False, wait
    monkeypatch.setattr(JobDir, "stamp", unreadable)
    with pytest.raises(Enough):
        watch.supervisor.run(watch.feed)
    assert watch.feed.detector.silent is False


def test_a_loop_that_is_at_work_on_hosts_does_not_hang(watch: Watch) -> None:
    """What hangs on its own disk does: to keep the next generation is the first part of beginning it."""
    busy: dict[str, bool] = {}

    class Enough(Exception):
        pass

    def noting(name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def done(*given: Any, **more: Any) -> Any:
            busy[name] = watch.busy
            return does(*given, **more)

        return done

    def wait(seconds: float) -> None:
        if len(watch.all_run) == 2:
            raise Enough

    deployer: Any = watch.supervisor.deployer
    deployer.provision = lambda plan, hosts: {}
    for name in ("provision", "apply", "begin"):
        setattr(deployer, name, noting(name, getattr(deployer, name)))
    watch.seen, watch.cleared = H1_LOST, frozenset({1})
    watch.feed.detector.generation = watch.seen.control.generation
    watch.feed.wait = wait
    with pytest.raises(Enough):
        watch.supervisor.run(watch.feed)
    assert (busy, watch.all_run) == ({"provision": True, "apply": True, "begin": False}, [True, False])


def test_a_generation_that_begins_ends_the_wait(watch: Watch) -> None:
    for _ in range(3):
        watch.seen, watch.cleared = H1_LOST, frozenset({1})
        watch.look(0.7 * TIMEOUT)
        watch.seen = RUNNING
        watch.look(1.0)
    assert watch.ended == []


def test_a_host_that_only_the_supervisor_does_not_hear_is_waited_for_once_the_others_fail(watch: Watch) -> None:
    """The launchers hear it, so the job trains. It is told once that a host is not heard."""
    watch.seen = H1_LOST
    watch.look(10 * TIMEOUT)
    assert watch.ended == []
    died = replace(H1_LOST.nodes[0], state="failed", failure=failed(node=0, host="h0", at=watch.clock.time))
    watch.seen = replace(H1_LOST, nodes=(died, H1_LOST.nodes[1]))
    assert TIMEOUT <= give_up(watch) <= TIMEOUT + 2.0
    assert len(watch.told("waiting")) == 1


def test_a_stray_that_cannot_be_removed_is_no_wait_while_the_job_trains(watch: Watch) -> None:
    """The launchers hear the lost host. Once the others fail, it is waited for as long as the spec says."""
    watch.world.broken = {"s1": HostError("s1", "silent", "its engine hangs")}
    stray = replace(RUNNING.nodes[1], host="s1", state="fenced", container="c")
    watch.seen = replace(H1_LOST, strays=(stray,))
    watch.look(10 * TIMEOUT)
    assert watch.world.done.count("remove node 1 on s1") > 2
    died = replace(H1_LOST.nodes[0], state="failed", failure=failed(node=0, host="h0", at=watch.clock.time))
    watch.seen = replace(watch.seen, nodes=(died, H1_LOST.nodes[1]))
    assert TIMEOUT <= give_up(watch) <= TIMEOUT + 10.0


def alone(watch: Watch) -> None:
    """Have node 1 fail, which can begin again alone, and whose host does not start it; there is no other one."""
    plan = watch.supervisor.deployer.plan
    assert plan is not None
    rejoins = replace(plan.nodes[1], launch=replace(plan.nodes[1].launch, rejoin=3))
    watch.supervisor.deployer.job.keep_plan(replace(plan, nodes=(plan.nodes[0], rejoins)))
    watch.supervisor.deployer.free_hosts = lambda observed: ()  # type: ignore[method-assign]
    watch.world.broken = {"h1": BROKEN}
    failure = failed(at=watch.clock.time, host="h1", exit_code=7, ran=20.0)
    ended = replace(RUNNING.nodes[1], state="failed", launcher=None, failure=failure)
    watch.seen = replace(RUNNING, nodes=(RUNNING.nodes[0], ended))


def test_a_node_that_begins_again_alone_has_failed_once_however_often_it_is_started(watch: Watch) -> None:
    """Else its failure would look like one that happens again, which is a bug, and use up `max_restarts`."""
    alone(watch)
    watch.look(20.0)
    assert watch.world.done.count("start node 1 on h1") > 2
    watch.world.broken = {}
    while not watch.seen.control.ledger.failures:
        watch.look(POLL_INTERVAL)
    assert watch.ended == []
    assert [(one.exit_code, one.alone) for one in watch.seen.control.ledger.failures] == [(7, True)]
    assert len(watch.told("failure")) == 1


def test_a_node_that_begins_again_alone_is_not_tried_for_ever(watch: Watch) -> None:
    alone(watch)
    assert TIMEOUT <= give_up(watch, "h1: no") <= TIMEOUT + 10.0
    assert len(watch.told("waiting")) == 1


def test_a_failure_that_a_start_in_vain_has_hidden_counts(watch: Watch) -> None:
    """The start has overwritten the report, so no later look shows that failure."""
    alone(watch)
    observe, pending = watch.supervisor.deployer.observe, replace(RUNNING.nodes[1], state="pending", launcher=None)

    def seen() -> Any:
        found = observe()
        begun = "start node 1 on h1" in watch.world.done
        return replace(found, nodes=(found.nodes[0], pending)) if begun else found

    watch.supervisor.deployer.observe = watch.feed.observe = seen  # type: ignore[method-assign]
    watch.look(20.0)
    assert watch.world.done.count("start node 1 on h1") > 2
    assert [one.exit_code for one in watch.seen.control.ledger.failures] == [7]


def test_a_restart_pauses_once_however_often_it_is_tried(watch: Watch) -> None:
    """After each failure without progress the pause is longer; what is tried again has pauses of its own."""
    killed = replace(RUNNING.nodes[1], state="failed", launcher=None, failure=dead_launcher(generation=1, at=990.0))
    before = tuple(dead_launcher(generation=-n, at=900.0, node=0) for n in range(6))
    ledger = replace(RUNNING.control.ledger, failures=before)
    watch.world.broken = {"h1": BROKEN}
    watch.seen = replace(RUNNING, nodes=(RUNNING.nodes[0], killed), control=replace(RUNNING.control, ledger=ledger))
    watch.look(1.0)
    paused = watch.clock.time - 1000.0
    watch.look(30.0)
    assert (watch.ended, paused >= LONGEST_DELAY) == ([], True)
    assert watch.world.done.count("start node 1 on h1") > 5


def test_nothing_is_decided_until_it_was_tried_to_plan_nodes_where_others_have_moved_them(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the old plan, they would be sent back. What another try does not change is tried after pauses that grow."""
    supervisor, tried, decided = watch.supervisor, list[float](), list[float]()
    why: list[Exception] = [Locked({}), HostError("h0", "lost", "no answer")]
    wrong = DeployError("another version of jobctl brought it up")

    def follow(now: object) -> None:
        tried.append(watch.clock.time)
        raise why.pop() if why else wrong

    decide = supervisor._decide
    monkeypatch.setattr(supervisor, "_has_to_follow", lambda generation: True)
    monkeypatch.setattr(supervisor.actions, "follow_moves", follow)
    monkeypatch.setattr(supervisor, "_decide", lambda *given: decided.append(watch.clock.time) or decide(*given))
    watch.look(2 * POLL_INTERVAL)
    assert (len(tried), decided) == (2, [])
    watch.look(30.0)
    assert (len(decided), len(tried) < 15) == (30.0 / POLL_INTERVAL, True)
