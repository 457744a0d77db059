"""What hosts tell, put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.host_state import HostState, merge
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.fleet import Fleet
from jobctl.jobspec.deploy.transport.fanout import Outcome
from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
from jobctl.jobspec.spec.hosts import Host

HOMES = {0: "a", 1: "b"}
MEMBERS = tuple(Member(node, node, ("trainer",), host, host, 1) for node, host in HOMES.items())
GENERATION = Generation("job", "run", 1, "run", 1.0, MEMBERS, RendezvousPoint("a", 1, "run-1"), None)
CONTROL = Control(GENERATION, Ledger(1.0))


def container(node: int, service: str | None = None) -> SeenContainer:
    return SeenContainer(node, "trainer", f"id-{service or node}", True, "hash", "me@here", service=service)


def on(*containers: SeenContainer) -> HostState:
    nodes = frozenset(one.node for one in containers if one.service is None)
    return HostState(containers, CONTROL, {}, directories=nodes, there=True)


def test_two_names_of_one_machine_make_no_stray_of_a_node() -> None:
    """Both names tell of all containers: taken for two hosts, each node would run where it does not belong too."""
    every = on(container(0), container(1), container(-1, "etcd-0"))
    for control in (CONTROL, Control()):
        found = merge({"a": every, "b": every}, {}, HOMES, supervised=True, before=control, services={"etcd-0": "b"})
        assert [(node.node, node.host, node.container) for node in found.nodes] == [(0, "a", "id-0"), (1, "b", "id-1")]
        assert found.strays == ()
        assert [(service.name, service.host) for service in found.services] == [("etcd-0", "b")]


def test_a_node_that_runs_twice_on_two_machines_is_a_stray() -> None:
    other = SeenContainer(0, "trainer", "another", True, "hash", "me@here")
    found = merge({"a": on(container(0)), "b": on(container(1), other)}, {}, HOMES, supervised=True)
    assert [(node.node, node.host) for node in found.strays] == [(0, "b")]


def test_what_runs_elsewhere_of_a_node_that_is_lost_is_a_stray() -> None:
    """With etcd it may hold the lease of the node, which could then begin nowhere."""
    back = SeenContainer(1, "trainer", "id-1", True, "hash", "me@here")
    seen, lost = {"a": on(container(0)), "c": on(back)}, {"b": "not heard"}
    found = merge(seen, lost, HOMES, supervised=True, before=CONTROL)
    assert [(node.node, node.host, node.reachable) for node in found.nodes] == [(0, "a", True), (1, "b", False)]
    assert [(node.node, node.host) for node in found.strays] == [(1, "c")]
    moving = merge(seen, lost, {0: "a", 1: "c"}, supervised=True, before=CONTROL)
    assert moving.strays == ()


def test_what_an_earlier_life_of_a_node_has_left_elsewhere_is_not_the_node() -> None:
    """Where it belongs, somebody has removed all that there was of it: it starts there again."""
    left = replace(on(), reports={1: {"state": "failed", "generation": 1}}, directories=frozenset({1}))
    found = merge({"a": on(container(0)), "b": on(), "c": left}, {}, HOMES, supervised=True)
    assert [(node.host, node.state) for node in found.nodes] == [("a", "pending"), ("b", "pending")]


def test_what_a_silent_host_was_given_counts_beside_a_newer_budget() -> None:
    """A command was killed when it had renewed the budget on one host, and not begun a generation."""
    later = replace(CONTROL, generation=replace(GENERATION, number=2))
    renewed = replace(on(container(0)), control=Control(GENERATION, Ledger(5.0)))
    found = merge({"a": renewed}, {"b": "not heard"}, HOMES, supervised=True, before=later)
    assert (found.control.generation, found.control.ledger) == (later.generation, Ledger(5.0))


def test_a_job_that_was_brought_up_again_is_the_newer_one() -> None:
    again = replace(on(container(0)), control=Control(replace(GENERATION, began=9.0), Ledger(9.0)))
    later = Control(replace(GENERATION, number=7), Ledger(2.0))
    found = merge({"a": again}, {"b": "not heard"}, HOMES, supervised=True, before=later)
    assert found.control == again.control


class Place:
    """The place of a job on a host."""

    def __init__(self, name: str) -> None:
        self.host = Host(name)


def test_a_host_that_was_silent_is_asked_again_once_nobody_follows_it(tmp_path: Path) -> None:
    """While hosts are followed, no step waits for one that is silent: it is heard as soon as it is back."""
    tells = {"a": on(container(0)), "b": on(container(1))}
    together: Any = SimpleNamespace(
        keeps_run=False,
        on_each=lambda asked, look: Outcome({one: tells[one.host.name] for one in asked}, {}),
        following=lambda *of: SimpleNamespace(start=lambda: None, close=lambda: None, feed=lambda heard: heard),
    )
    inventory, places = Inventory((Host("a"), Host("b"))), [Place("a"), Place("b")]
    (job := JobDir(tmp_path / "jobs/job")).create()
    fleet: Any = Fleet(job, inventory, places, together, None)  # type: ignore[type-var]
    with fleet.follow() as heard:
        heard({"a": tells["a"]}, {"b": HostError("b", "silent", "it is not heard")})
        assert set(fleet.observe().unreachable) == {"b"}
    assert set(fleet.observe().unreachable) == set()
