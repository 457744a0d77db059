"""Nodes that join a job that runs: it goes on until they can begin at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.executor import Transition
from jobctl.jobspec.deploy.apply.joining import LIMIT, Joined, bring_in, joining
from jobctl.jobspec.deploy.apply.reconcile import Wanted, reconcile
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.launcher.report.node_report import StandbyState
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Origin
from jobctl.jobspec.plan.types import HostRef, Node, Standby
from tests.deploy.apply.test_executor import BROKEN, CHANGED, RUNNING, RUNS, TWO, World, run

ABLE = replace(TWO.nodes[0].launch, node=2, standby=Standby((("torch",),), "torch.distributed.run"))
THIRD = replace(TWO.nodes[0], index=2, host=HostRef("h2", "10.0.0.2"), launch=ABLE)
OLD = dict.fromkeys((0, 1, 2), ArtefactId("old"))


def wanted(node: Node = THIRD, **changes: Any) -> Wanted:
    """Return that there should be three nodes, the last of which is this one."""
    return replace(Wanted(replace(TWO, nodes=(*TWO.nodes, node)), OLD, "code"), **changes)


def steps(want: Wanted, observed: Observed = RUNNING, failed: Iterable[str] = ()) -> list[str]:
    transition = Transition(want, observed, reconcile(want, observed))
    return [str(step) for step in joining(transition, dict.fromkeys(failed, BROKEN))]


def with_member(**changes: Any) -> Observed:
    """What runs, with its second node changed."""
    return replace(RUNNING, nodes=(RUNS[0], replace(RUNS[1], **changes)))


START = ["start node 2 on h2: not running"]


def test_a_node_that_can_get_ready_beside_what_runs_is_started_first() -> None:
    assert steps(wanted()) == START


@pytest.mark.parametrize(
    "launch",
    [
        replace(ABLE, standby=None),
        replace(ABLE, standby=Standby((), "", "`recovery.standby` is off")),
        replace(ABLE, setup=("pip install .",)),
        replace(ABLE, rejoin=3),
        replace(ABLE, regroups=True),
    ],
    ids=["command", "off", "setup", "rejoin", "regroups"],
)
def test_a_node_without_a_standby_of_its_own_is_not(launch: Any) -> None:
    assert steps(wanted(replace(THIRD, launch=launch))) == []


def test_nothing_is_waited_for_where_what_runs_ends_all_the_same() -> None:
    assert steps(replace(wanted(), artefacts={**OLD, 0: ArtefactId("new")})) == []  # its launcher is replaced
    assert steps(wanted(), with_member(state="failed", failure=None, reason="no")) == []
    assert steps(wanted(), with_member(state="lost", reachable=False)) == []
    assert steps(wanted(), replace(RUNNING, control=replace(RUNNING.control, generation=None), nodes=())) == []
    assert steps(wanted(begins=False)) == []


def test_nothing_is_begun_for_a_change_that_is_not_made() -> None:
    assert steps(wanted(), failed=["h2"]) == []
    three = wanted().plan
    assert steps(wanted(plan=replace(three, min_nodes=3)), failed=["h1"]) == []


def test_a_node_that_a_generation_has_already_does_not_join() -> None:
    """It was killed, and begins again with the others."""
    assert steps(wanted(anew="`jobctl restart`"), with_member(launcher=None, state="pending")) == []


class Joining(World):
    """Hosts on which a node gets ready: what is seen of it, one look after another; the last one stays."""

    def __init__(self, *seen: Observed) -> None:
        super().__init__()
        self.seen, self.now, self.told, self.kept = list(seen), 0.0, list[str](), 0
        self.job = SimpleNamespace(stamp=lambda: self.kept)

    @contextmanager
    def let_in(self, command: str) -> Iterator[None]:
        self.done.append("others may have the lock")
        yield
        self.done.append("lock")

    def observe(self) -> Observed:
        self.done.append("look")
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def tell(self, text: str) -> None:
        self.told.append(text)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 2 * LIMIT, "it waits without end"

    def bring_in(self) -> Joined:
        want = wanted()
        found = joining(Transition(want, RUNNING, reconcile(want, RUNNING)), {})
        return bring_in(self, found, RUNNING, lambda: self.now, self.sleep)  # type: ignore[arg-type]


def with_third(state: str = "warming", reason: str | None = None, before: Observed = RUNNING, **more: Any) -> Observed:
    """What runs, and the node that joins with its standby."""
    known = {"artefact": OLD[0], "launcher": 1, "standby": StandbyState(state, reason), **more}
    return replace(before, nodes=(*before.nodes, ObservedNode(2, "trainer", "h2", "starting", **known)))


def test_it_returns_once_the_node_is_ready_and_nothing_has_ended() -> None:
    world, ready = Joining(with_third(), with_third(), with_third("ready")), with_third("ready")
    assert world.bring_in() == Joined(ready, {}, {})
    looks = ["others may have the lock", *3 * ["look"], "lock", "look"]
    assert world.done == ["start node 2 on h2", *looks]
    assert world.told == 2 * ["waits for the standby of node 2; what runs goes on until then"]


def test_all_nodes_begin_from_standby_those_that_train_too() -> None:
    """They have none for a while after each start."""
    begins = StandbyState("warming", "it is begun after the first step")
    young = replace(RUNNING, nodes=(replace(RUNS[0], standby=begins), RUNS[1]))
    ready = with_third("ready")
    world = Joining(with_third(before=young), with_third("ready", before=young), ready)
    assert world.bring_in() == Joined(ready, {}, {})
    assert [text.partition(";")[0] for text in world.told] == [
        "waits for the standby of node 0, 2",
        "waits for the standby of node 0",
    ]
    off = with_third("off", "memory is short", before=young)  # then the others would wait for it
    assert Joining(off).bring_in().cold == {2: "memory is short"}
    assert Joining(with_third(before=young)).bring_in().cold.keys() == {0, 2}


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (with_third("off", "memory is short"), "memory is short"),
        (with_third(launcher=None), "its launcher has gone"),
        (with_third(reachable=False), "its launcher has gone"),
        (RUNNING, "its launcher has gone"),
        (with_third(standby=None), "its launcher has none"),
    ],
    ids=["off", "gone", "silent", "never-there", "without"],
)
def test_nobody_waits_for_a_standby_that_does_not_come(seen: Observed, why: str) -> None:
    world = Joining(with_third(), seen)
    assert (world.bring_in().cold, world.done.count("look")) == ({2: why}, 3)


NEXT = replace(RUNNING.control.generation, number=2)  # type: ignore[type-var]
FAILED = with_member(state="failed", reason="rank 1 exited with code 1")
SILENT = replace(with_member(state="lost", reachable=False), unreachable={"h1": "not heard"})
OTHER = replace(RUNNING, control=replace(RUNNING.control, generation=NEXT))


@pytest.mark.parametrize("now", [FAILED, SILENT, OTHER], ids=["failed", "silent", "other-generation"])
def test_nobody_waits_once_what_runs_does_not_go_on(now: Observed) -> None:
    """A supervisor may act on that, too: whichever is first."""
    world = Joining(with_third(), with_third(before=now))
    assert world.bring_in().cold == {2: "what runs did not go on until its standby was ready"}
    assert world.done.count("look") == 3


def test_nobody_waits_once_another_command_has_changed_the_job() -> None:
    world = Joining(with_third(), with_third())

    def sleep(seconds: float) -> None:
        Joining.sleep(world, seconds)
        world.kept += 1

    world.sleep = sleep  # type: ignore[method-assign]
    assert (world.bring_in().overtaken, world.done.count("look")) == ("was changed", 3)


@pytest.mark.parametrize(
    ("now", "overtaken"),
    [
        (replace(RUNNING, control=replace(RUNNING.control, generation=None), nodes=()), "was taken down"),
        (
            replace(
                OTHER, control=replace(OTHER.control, generation=replace(NEXT, origin=Origin("elsewhere", "id", "w")))
            ),
            "was changed",
        ),
        (OTHER, None),
        (FAILED, None),
    ],
    ids=["down", "changed-elsewhere", "restarted", "failed"],
)
def test_what_another_command_has_done_meanwhile_is_not_undone(now: Observed, overtaken: str | None) -> None:
    assert Joining(with_third(), now).bring_in().overtaken == overtaken


def test_it_is_not_waited_for_without_end() -> None:
    world = Joining(with_third())
    assert world.bring_in().cold == {2: f"its standby was not ready after {LIMIT:g} s"}
    assert LIMIT < world.now < LIMIT + 1


def test_a_node_that_cannot_be_started_is_not_waited_for() -> None:
    world = Joining(RUNNING)
    world.broken = {"h2": BROKEN}
    assert world.bring_in() == Joined(RUNNING, {"h2": BROKEN}, {})
    assert world.done == ["start node 2 on h2", "look"]


def test_a_node_that_is_not_to_join_any_more_is_removed_while_the_others_train() -> None:
    """The command that had started it was interrupted, and the next one wants what runs."""
    world, want = World(), replace(CHANGED, artefacts=OLD)
    assert run(world, with_third("ready"), want).failed == {}
    assert world.done == ["adopt", "remove node 2 on h2"]
