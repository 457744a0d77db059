"""What is told of hosts whose launchers wait to become a node."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.host_state import HostState, merge
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.observed import Observed, phase
from jobctl.jobspec.deploy.model.spare_state import SpareState, as_nodes, idle_spare
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import AutonomyTerms, Base, Generation, LastMove, Member, RendezvousPoint
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import Continue, Repair
from jobctl.views.status import state_json, status_text
from tests.deploy.targets.test_spares import MOVES

WAITS: Json = {"node": -1, "state": "waiting", "port": 4000, "launcher": {"pid": 7}, "standby": {"state": "off"}}
HASH = ArtefactId("hash")
BOX = SeenContainer(-1, "spare", "box", True, HASH, "me@here")
GONE = replace(BOX, running=False)


def as_node(state: str = "running", **more: object) -> Json:
    return {
        "node": 1,
        "spare": True,
        "state": state,
        "generation": 2,
        "launcher": {"pid": 7},
        "role": "trainer",
        **more,
    }


@pytest.mark.parametrize(
    ("spare", "reports", "node"),
    [
        (WAITS, {}, -1),
        ({}, {}, -1),
        (None, {}, -1),
        ({**WAITS, "node": 0}, {}, 0),
        ({**WAITS, "node": 1}, {1: as_node()}, 1),
        (WAITS, {1: as_node()}, 1),  # it has not said so in its own file yet
        (WAITS, {1: {**as_node(), "spare": False}}, -1),
        (WAITS, {1: as_node(launcher={"pid": 6})}, -1),  # what an earlier container has left
        ({}, {1: as_node(launcher=None)}, -1),
    ],
)
def test_a_spares_container_is_the_node_that_its_launcher_has_become(
    spare: Json | None, reports: dict[int, Json], node: int
) -> None:
    other = SeenContainer(0, "trainer", "other", True, HASH, "me@here")
    assert as_nodes((BOX, other), reports, spare) == (replace(BOX, node=node), other)


@pytest.mark.parametrize(
    ("container", "said", "state"),
    [
        (BOX, WAITS, SpareState("s", "ready", HASH, 4000)),
        (BOX, {**WAITS, "standby": {"state": "ready"}}, SpareState("s", "ready", HASH, 4000)),
        (BOX, {**WAITS, "standby": {"state": "warming"}}, SpareState("s", "warming", HASH, 4000)),
        (BOX, {}, SpareState("s", "cold", HASH)),
        (BOX, {**WAITS, "port": None}, SpareState("s", "cold", HASH)),
        (BOX, {**WAITS, "state": "stopped"}, SpareState("s", "cold", HASH)),
        (GONE, WAITS, SpareState("s", "cold")),
        (None, WAITS, SpareState("s", "cold")),
        (replace(BOX, node=0), WAITS, SpareState("s", "cold")),
        (replace(BOX, paused=True), WAITS, SpareState("s", "cold", HASH)),
    ],
)
def test_how_a_spare_is(container: SeenContainer | None, said: Json, state: SpareState) -> None:
    assert idle_spare("s", (container,) if container else (), said) == state
    assert state.is_hot == (state.state != "cold")


def generation(host: str) -> Control:
    """Generation 2, with node 1 on `host`."""
    members = tuple(Member(node, node, ("trainer",), at, at, 1) for node, at in ((0, "a"), (1, host)))
    return Control(
        Generation("job", "run", 2, "run", 1.0, members, RendezvousPoint("a", 1, "run-2"), None), Ledger(1.0)
    )


MOVED = generation("s")
FIRST: Json = {"node": 0, "state": "running", "generation": 2, "port": 3000}
A = HostState((SeenContainer(0, "trainer", "a", True, HASH, "me@here"),), MOVED, {0: FIRST})


def look(spare: HostState, control: Control = MOVED) -> Observed:
    """What is seen of a job whose node 1 has moved from b, which is lost, to s."""
    seen = {"a": replace(A, control=control), "s": replace(spare, control=control)}
    return merge(seen, {"b": "not heard"}, {0: "a", 1: "s"}, supervised=True)


@pytest.mark.parametrize("left", [{}, {1: as_node("failed", launcher={"pid": 1})}])
def test_until_it_reports_a_node_starts_that_a_spare_is_about_to_become(left: dict[int, Json]) -> None:
    """Else another container would be started for it."""
    seen = look(HostState((BOX,), MOVED, left, directories=frozenset(left), spare=WAITS))
    assert [(n.node, n.host, n.state, n.alive, n.container, n.port, n.artefact) for n in seen.nodes] == [
        (0, "a", "running", True, "a", 3000, HASH),
        (1, "s", "starting", True, "box", 4000, HASH),
    ]
    assert (seen.strays, phase(seen)[0], decide(seen, MOVES.recovery, 1.0)) == ((), "starting", Continue())


def test_a_node_whose_spare_has_died_before_it_began_has_no_launcher() -> None:
    seen = look(HostState((GONE,), MOVED, {}, spare=WAITS))
    assert [(n.node, n.state, n.alive) for n in seen.nodes] == [(0, "running", True), (1, "pending", False)]
    assert decide(seen, MOVES.recovery, 1.0) == Repair("node 1 has no launcher")


def test_a_node_in_a_spares_container_is_like_any_other() -> None:
    became = replace(BOX, node=1)
    seen = look(HostState((became,), MOVED, {1: as_node(port=4000)}, spare={**WAITS, "node": 1}))
    assert [(n.node, n.role, n.host, n.state, n.container) for n in seen.nodes] == [
        (0, "trainer", "a", "running", "a"),
        (1, "trainer", "s", "running", "box"),
    ]
    back = look(HostState((became,), MOVED, {1: as_node()}, spare={**WAITS, "node": 1}), generation("b"))
    assert [(n.node, n.host, n.container) for n in back.strays] == []  # s is where the plan has it
    assert [(n.node, n.host, n.state) for n in back.nodes] == [(0, "a", "running"), (1, "b", "lost")]


def test_a_host_has_the_generation_that_its_launchers_have_begun() -> None:
    """Its control file is of the generation before, and nobody has to send it anything."""
    assert MOVED.generation is not None
    alone = AutonomyTerms(1, (), (1, 2), base=Base(1, "run-1"), moved=LastMove(2, "run-2", 1))
    order = asdict(replace(MOVED.generation, autonomy=alone))
    first = replace(MOVED, generation=replace(MOVED.generation, number=1, autonomy=replace(alone, moved=None)))
    became = HostState((replace(BOX, node=1),), first, {1: {**as_node(), "order": order}}, spare={**WAITS, "node": 1})
    a = replace(A, control=first)
    seen = merge({"a": a, "s": became}, {"b": "not heard"}, {0: "a", 1: "b"}, supervised=False)
    assert (seen.control.placement, seen.outdated) == ({0: "a", 1: "s"}, ("a",))
    told = replace(a, reports={0: {**FIRST, "order": order}})
    seen = merge({"a": told, "s": became}, {"b": "not heard"}, {0: "a", 1: "b"}, supervised=False)
    assert (seen.outdated, phase(seen)[0]) == ((), "running")


def test_an_idle_spare_is_no_node_and_no_stray() -> None:
    seen = look(HostState((BOX,), MOVED, {}, spare=WAITS), generation("b"))
    assert ([(n.node, n.host) for n in seen.nodes], seen.strays) == ([(0, "a"), (1, "b")], ())


def test_each_spare_host_without_a_node_is_told_of(tmp_path: Path) -> None:
    hosts = (Host("h0"), Host("h1"), *(Host(name, spare=True) for name in ("hot", "cold", "gone", "used")))
    inventory = Inventory(hosts).with_hosts((Host("left", spare=True),))
    made = Hosts(JobDir(tmp_path / "jobs" / "job"), "compose", inventory, MOVES)
    seen = {name: HostState((), Control(), {}) for name in ("h0", "h1", "cold", "used", "left")}
    seen["hot"] = HostState((BOX,), Control(), {}, spare=WAITS)
    used = generation("used")
    seen["used"] = replace(seen["used"], control=used)
    assert len(made.fleet.merge(seen, {}).spares) == 3
    seen["left"] = replace(seen["hot"], containers=(replace(BOX, id="other"),))
    assert made.fleet.merge(seen, {"gone": HostError("gone", "unreachable", "not heard")}).spares == (
        SpareState("hot", "ready", HASH, 4000),
        SpareState("cold", "cold"),
        SpareState("gone", "unreachable"),
        SpareState("left", "ready", HASH, 4000),  # `up` removes it
    )


def test_the_files_of_a_spare_are_read(tmp_path: Path) -> None:
    """A folder for each node lies there in advance: it counts as nothing."""
    for name in ("run", "spare", "node-0", "node-1"):
        (tmp_path / name).mkdir()
    made = HostJob(Host("s", spare=True), LocalTransport(), "job", "ssh")
    made.use_directories(str(tmp_path), str(tmp_path))
    seen = made.observe((BOX,))
    assert (seen.spare, seen.directories, seen.containers) == ({}, frozenset(), (BOX,))
    (tmp_path / "spare" / "report.json").write_text(json.dumps({**WAITS, "node": 1}))
    (tmp_path / "node-1" / "report.json").write_text(json.dumps(as_node()))
    seen = made.observe((BOX,))
    assert (seen.spare, seen.directories) == ({**WAITS, "node": 1}, frozenset({1}))
    assert seen.containers == (replace(BOX, node=1),)
    (tmp_path / "spare" / "report.json").unlink()
    (tmp_path / "spare").rmdir()
    assert (made.observe(()).spare, made.observe(()).directories) == (None, frozenset({0, 1}))


def test_status_shows_spares() -> None:
    told = replace(look(HostState((), MOVED, {})), spares=(SpareState("s", "ready", HASH, 1), SpareState("t", "cold")))
    handle: Any = SimpleNamespace(plan=None, failures={}, job=SimpleNamespace(name="job"))
    assert state_json(handle, told)["spares"] == [{"host": "s", "state": "ready"}, {"host": "t", "state": "cold"}]
    assert status_text(handle, told, wide=False).endswith("\n\nspares: s ready, t cold")
    assert state_json(handle, replace(told, spares=()))["spares"] == []
