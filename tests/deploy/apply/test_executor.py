"""In which order steps are applied, and what is left alone when hosts cannot do their part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.clock import Clock
from jobctl.jobspec.deploy.apply.executor import Done, Execution, Transition, execute, fresh_run
from jobctl.jobspec.deploy.apply.reconcile import Step, Wanted, reconcile
from jobctl.jobspec.deploy.model.control import Control, JobResult, Ledger, newest
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Base, Generation, HotSpare, first_generation
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.plan.types import Checkpoint, HostRef, Node, Plan
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_reconcile import PLAN
from tests.tools.failures import failed

HOSTS = ("h0", "h1")
TWO = replace(
    PLAN, nodes=tuple(replace(n, host=HostRef(h, f"10.0.0.{n.index}")) for n, h in zip(PLAN.nodes, HOSTS, strict=True))
)
OLD, NEW, HOT = map(ArtefactId, ("old", "new", "h"))
RUNS = tuple(
    ObservedNode(n.index, "trainer", n.host.name, "running", artefact=OLD, launcher=1, generation=1) for n in TWO.nodes
)
RUNNING = Observed(Control(first_generation(TWO), Ledger(1.0, "code")), RUNS, supervised=True)
CHANGED = Wanted(TWO, {0: NEW, 1: NEW}, "code")
DOWN = HostError("h1", "docker-down", "its Docker Engine does not run")
BROKEN = HostError("h1", "cannot-start", "no")


class Now(Clock):
    """A clock that stands still."""

    def now(self) -> float:
        return 5.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


@dataclass
class World:
    """Hosts on which `away` engines answer only after so many looks, and `broken` steps fail. `done` is what happened."""

    away: dict[str, int] = field(default_factory=dict)
    broken: Mapping[str, HostError] = field(default_factory=dict)
    dies: str | None = None  # whose engine goes away when the processes are ended
    image: None = None
    inventory: Inventory | None = None
    done: list[str] = field(default_factory=list)
    now: Observed = RUNNING  # how the job is once all that comes before the generation is done
    rules: set[str] = field(default_factory=set)  # what those tell launchers to do that are about failures
    ledger: Ledger | None = None  # what went with the generation that has begun
    spares: tuple[HotSpare, ...] | None = (
        None  # those that launchers may use by themselves in it; None: they begin nothing
    )

    def engines(self, hosts: Iterable[str], patience: float) -> Mapping[str, HostError]:
        self.done.append(f"engines of {' '.join(sorted(hosts))} within {patience:g} s")
        left = {host: self.away.get(host, 0) for host in hosts}
        if patience:
            self.away = {}
            left = {host: max(0, looks - 1) for host, looks in left.items()}
        return {host: DOWN for host, looks in left.items() if looks}

    def stop_processes(self, grace: float, *, for_change: bool = False) -> None:
        self.done.append("pause" if for_change else "stop")
        if self.dies:
            self.away = {self.dies: 1}

    def apply(self, steps: Sequence[Step]) -> Mapping[str, HostError]:
        self.done += [f"{step.kind} {step.target}" for step in steps]
        hosts = {step.host for step in steps}
        return {host: DOWN for host in self.away if host in hosts} | {
            host: error for host, error in self.broken.items() if host in hosts
        }

    def observe(self) -> Observed:
        return self.now

    def next_generation(self, plan: Plan, last: Generation, grace: float, nodes: Sequence[Node]) -> Generation:
        return replace(last, number=last.number + 1)

    def idle_spares(self, artefacts: Mapping[str, ArtefactId], homes: Collection[str]) -> tuple[HotSpare, ...]:
        every = (HotSpare("h0", "10.0.0.0", 3000), HotSpare("s1", "10.0.0.8", 4000), HotSpare("s2", "10.0.0.9", 5000))
        return tuple(spare for spare in every if spare.host in artefacts and spare.host not in homes)

    def begin(self, generation: Generation, ledger: Ledger, patience: float) -> Mapping[str, HostError]:
        self.done.append(f"begin {generation.number}")
        self.spares = generation.autonomy.spares if generation.autonomy else None
        self.rules = {rule.do for rule in generation.autonomy.rules} if generation.autonomy else set()
        self.ledger = ledger
        return {}


def run(world: Any, observed: Observed = RUNNING, want: Wanted = CHANGED, **how: Any) -> Done:
    execution = Execution(adopt=lambda: world.done.append("adopt"), **how)
    transition = Transition(want, observed, reconcile(want, observed))
    return execute(world, transition, Now(), lambda step: None, execution)


def test_launchers_know_the_spares_that_wait_when_a_generation_begins() -> None:
    """Not one that has a node, nor one that the job uses no more."""
    world, hot = World(), replace(CHANGED, spare_artefacts=dict.fromkeys(("h0", "s1", "s2"), HOT))
    shuns = replace(RUNNING, control=replace(RUNNING.control, ledger=Ledger(1.0, "code", excluded=("s1",))))
    run(world, shuns, hot, failure=Failure(1, 4.0, 1, "h1", 1, 1, "exit", 7, 60.0))
    assert world.spares == (HotSpare("s2", "10.0.0.9", 5000),)
    run(world, RUNNING, CHANGED)
    assert world.spares == ()
    fewer = replace(hot, plan=replace(hot.plan, min_nodes=1))  # a command might leave out the nodes that moved one
    run(world, RUNNING, fewer)
    assert world.spares == ()


@pytest.mark.parametrize(("hosts", "leaves"), [((), False), (HOSTS, False), ((*HOSTS, "h2"), True)])
def test_a_rule_has_a_node_leave_its_host_only_where_there_is_another(hosts: tuple[str, ...], leaves: bool) -> None:
    """Where nobody watches, launchers would wait for a supervisor, which could not move the node either."""
    world = World(inventory=Inventory(tuple(map(Host, hosts)), SshOptions()) if hosts else None)
    run(world, RUNNING, CHANGED)
    assert world.rules == {"restart", "fail"} | ({"exclude_host"} if leaves else set())


def test_launchers_begin_generations_where_nodes_may_join_again_at_once() -> None:
    """Not where a node has to stay away for a while first."""
    world = World()
    for after, spares in ((0.0, ()), (30.0, None)):
        first = replace(TWO.nodes[0], launch=replace(TWO.nodes[0].launch, rejoin=3, rejoin_after=after))
        run(world, RUNNING, replace(CHANGED, plan=replace(TWO, nodes=(first, *TWO.nodes[1:]))))
        assert world.spares == spares


REPLACED = ["adopt", "pause", "replace node 0 on h0", "replace node 1 on h1", "begin 2"]


def test_a_change_is_made_when_all_hosts_are_ready() -> None:
    world = World()
    done = run(world)
    assert (world.done, done.held, dict(done.failed)) == (["engines of h0 h1 within 0 s", *REPLACED], False, {})


@pytest.mark.parametrize("reached", [3, 4])
def test_a_generation_is_counted_from_the_last_one_that_anything_has_reached(reached: int) -> None:
    """While hosts are prepared, launchers go on; they may begin one more before they hear that the job is stopped."""
    third = replace(RUNNING.control, generation=replace(first_generation(TWO), number=3))
    world, noted = World(now=replace(RUNNING, control=third, nodes=(RUNS[0], replace(RUNS[1], generation=reached)))), []
    transition = Transition(CHANGED, RUNNING, reconcile(CHANGED, RUNNING))
    generation = execute(world, transition, Now(), noted.append).generation  # type: ignore[arg-type]
    assert generation is not None
    assert (generation.number, generation.base) == (reached + 1, Base(reached + 1, generation.rendezvous.id))
    assert (world.done[-1], noted[-1].generation) == (f"begin {reached + 1}", reached + 1)


def test_a_node_leaves_once_all_processes_have_ended_and_before_the_others_begin() -> None:
    """No other node sees a failure then, and nothing of the node still saves while the next generation loads."""
    world = World()
    run(world, want=replace(CHANGED, plan=replace(TWO, nodes=TWO.nodes[:1], min_nodes=1), artefacts={0: OLD}))
    assert world.done == ["engines of h1 within 0 s", "adopt", "pause", "remove node 1 on h1", "begin 2"]


# `up` has another host for node 1, which trains on h1.
ELSEWHERE = replace(TWO, nodes=(TWO.nodes[0], replace(TWO.nodes[1], host=HostRef("h2", "10.0.0.2"))))
LEAVES = Wanted(ELSEWHERE, {0: OLD, 1: NEW}, "code")
IN_CONTAINERS = replace(RUNNING, nodes=tuple(replace(node, container="c") for node in RUNS))


def test_a_node_that_gets_another_host_ends_with_all_others_and_in_its_time() -> None:
    """After a failure there is nobody to wait for: the others hang."""
    moved = ["remove node 1 on h1", "start node 1 on h2", "begin 2"]
    world = World()
    run(world, IN_CONTAINERS, LEAVES)
    assert world.done == ["engines of h1 within 0 s", "adopt", "pause", *moved]
    assert next(step.grace for step in reconcile(LEAVES, IN_CONTAINERS) if step.kind == "remove") == TWO.stop_grace > 0
    world = World()
    run(world, IN_CONTAINERS, replace(LEAVES, anew="a rule excludes h1", grace=0.0))
    assert world.done == ["adopt", *moved]


def test_a_node_trains_on_until_its_other_host_answers() -> None:
    world = World()
    assert (run(world, replace(IN_CONTAINERS, unreachable={"h2": "no"}), LEAVES).held, world.done) == (True, [])


SILENT = replace(RUNS[1], state="lost", reachable=False, launcher=None, artefact=None)


@pytest.mark.parametrize(
    ("want", "unreachable", "line"),
    [
        (LEAVES, "h2", "wait for h2: node 1 moves from h1 to h2; what runs goes on until then"),
        # Nobody can tell that node 1 has ended: h2 is not what it waits for.
        (replace(LEAVES, anew="`--fresh`"), "h1", "wait for h1: `--fresh`; what runs goes on until then"),
        # The same with a plan that can do without the silent host.
        (
            Wanted(replace(TWO, nodes=TWO.nodes[:1], min_nodes=1), {0: OLD}, "code"),
            "h1",
            "wait for h1: nodes changed from 2 to 1; what runs goes on until then",
        ),
    ],
)
def test_it_is_said_which_host_a_change_waits_for(want: Wanted, unreachable: str, line: str) -> None:
    nodes = IN_CONTAINERS.nodes if unreachable == "h2" else (RUNS[0], SILENT)
    observed = replace(IN_CONTAINERS, nodes=nodes, unreachable={unreachable: "no"})
    assert [str(step) for step in reconcile(want, observed)] == [line]


def test_the_cause_of_a_generation_is_that_a_node_moves() -> None:
    """Not that its container is another one, as it has to be there."""
    want = replace(LEAVES, changed=())
    assert next(str(step) for step in reconcile(want, IN_CONTAINERS) if step.kind == "generation") == (
        "generation 2: node 1 moves from h1 to h2"
    )


def test_a_node_that_runs_leaves_its_host_for_another_generation_only() -> None:
    """A supervisor completes the one that runs, while a change is about to be made."""
    assert reconcile(replace(LEAVES, begins=False), IN_CONTAINERS) == ()


def test_nothing_is_ended_while_an_engine_does_not_answer() -> None:
    world = World(away={"h1": 1})
    done = run(world)
    assert (world.done, done) == (["engines of h0 h1 within 0 s"], Done(None, {"h1": DOWN}, held=True))


def test_nothing_is_ended_when_a_host_could_not_be_prepared() -> None:
    world = World()
    done = run(world, failed={"h1": BROKEN})
    assert (world.done, done) == (["engines of h0 within 0 s"], Done(None, {"h1": BROKEN}, held=True))


def test_an_engine_that_comes_back_is_waited_for() -> None:
    world = World(away={"h1": 1})
    done = run(world, engines=20.0)
    assert (world.done, done.held) == (["engines of h0 h1 within 20 s", *REPLACED], False)


def test_steps_are_repeated_when_an_engine_goes_away_in_between() -> None:
    world = World(dies="h1")
    done = run(world, engines=20.0)
    again = ["engines of h1 within 20 s", "replace node 1 on h1"]
    assert world.done == ["engines of h0 h1 within 20 s", *REPLACED[:-1], *again, "begin 2"]
    assert (done.held, dict(done.failed)) == (False, {})


def test_a_change_that_has_begun_is_the_jobs_even_if_it_cannot_be_finished() -> None:
    """Its launchers were told to stop, and no result is kept: a supervisor goes on from there."""
    world = World(broken={"h1": BROKEN})
    done = run(world)
    assert (world.done, done) == (["engines of h0 h1 within 0 s", *REPLACED[:-1]], Done(None, {"h1": BROKEN}))


def test_a_change_waits_for_a_host_that_does_not_answer() -> None:
    lost = replace(RUNS[1], state="lost", reachable=False, launcher=None, artefact=None)
    observed = replace(RUNNING, nodes=(RUNS[0], lost), unreachable={"h1": "not heard"})
    world = World()
    assert (run(world, observed).held, world.done) == (True, [])


def test_a_job_that_has_ended_is_brought_up_as_far_as_its_hosts_can() -> None:
    ended = tuple(replace(n, state="failed", launcher=None, artefact=None, reason="x") for n in RUNS)
    control = replace(RUNNING.control, ledger=Ledger(1.0, "code", result=JobResult("failed", "x", 2.0)))
    world = World()
    done = run(world, replace(RUNNING, control=control, nodes=ended), failed={"h1": BROKEN})
    assert (world.done, done.held) == (["adopt", "start node 0 on h0"], False)


FAILED = failed(at=4.0)


def test_a_failure_is_counted_and_a_persons_wish_begins_a_new_budget() -> None:
    before = replace(RUNNING, control=replace(RUNNING.control, ledger=Ledger(1.0, "code", (FAILED,))))
    later, world = replace(FAILED, generation=2), World()
    run(world, before, failure=later)
    assert world.ledger == Ledger(1.0, "code", (FAILED, replace(later, noted=5.0)))
    run(world, before)
    assert world.ledger == Ledger(5.0, "code")
    ahead = replace(before.control, ledger=Ledger(99.0, "code", result=JobResult("stopped", "by the user", 99.0)))
    run(world, replace(before, control=ahead))  # by a machine whose clock is behind
    assert (newest([ahead, Control(None, world.ledger)]).ledger, world.ledger.result) == (world.ledger, None)
    control, members = before.control, first_generation(TWO).members
    small = replace(before, control=replace(control, generation=replace(first_generation(TWO), members=members[:1])))
    run(world, small, replace(CHANGED, anew="a host is back", keep_budget=True))
    assert world.ledger == Ledger(1.0, "code", (FAILED,))


def test_a_fresh_run_trains_where_none_has_trained() -> None:
    plan = replace(TWO, checkpoint=Checkpoint("/ckpt", True, 2))
    there = {"/ckpt/fresh-1", "/ckpt/fresh-2"}
    third = fresh_run(plan, None, there.__contains__)
    assert third.checkpoint_dir == "/ckpt/fresh-3"
    assert third.run_id != fresh_run(plan, None, {"/ckpt/fresh-1"}.__contains__).run_id
    assert fresh_run(replace(TWO, checkpoint=None), None, there.__contains__).checkpoint_dir is None
