"""Services of a job: what is done about them, and where they are seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.apply.reconcile import Wanted, reconcile
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.host_state import HostState, merge
from jobctl.jobspec.deploy.model.observed import Observed, ObservedService
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.types import HostRef, Service
from tests.deploy.apply.test_reconcile import PLAN, RUNNING, WANTED

MEMBERS = tuple(
    Service(
        f"etcd-{i}", "etcd", HostRef(f"h{i}", f"10.0.0.{i}"), PLAN.nodes[0].container, ("etcd",), "/etcd", "DIR", 2379
    )
    for i in range(2)
)
X = ArtefactId("x")
WITH = replace(WANTED, plan=replace(PLAN, services=MEMBERS), services={"etcd-0": X, "etcd-1": X})
SEEN = tuple(ObservedService(f"etcd-{i}", "etcd", f"h{i}", "running", X, "c") for i in range(2))
RUNS = replace(RUNNING, services=SEEN)


def seen(number: int, **how: object) -> Observed:
    """The running job, with one service changed."""
    found = tuple(replace(one, **how) if one.name == f"etcd-{number}" else one for one in SEEN)  # type: ignore[arg-type]
    return replace(RUNNING, services=found)


@pytest.mark.parametrize(
    ("wanted", "observed", "steps"),
    [
        (WITH, RUNS, []),
        (WITH, seen(1, state="exited"), ["start etcd-1 on h1: not running"]),
        (WITH, seen(1, artefact=ArtefactId("y")), ["replace etcd-1 on h1: the spec or the hosts changed"]),
        # Another version of jobctl has started it from the same inputs.
        (
            replace(WITH, services={"etcd-0": X, "etcd-1": ArtefactId("y", "i", "2.0")}),
            seen(1, artefact=ArtefactId("x", "i", "1.0")),
            [],
        ),
        # What has ended is not started from what it was, either.
        (
            WITH,
            seen(1, artefact=ArtefactId("y"), state="exited"),
            ["replace etcd-1 on h1: the spec or the hosts changed"],
        ),
        (WITH, replace(RUNNING, services=SEEN[:1]), ["start etcd-1 on h1: not running"]),
        (WITH, seen(1, host="h9"), ["remove etcd-1 on h9: it runs on h1", "start etcd-1 on h1: not running"]),
        (WANTED, RUNS, [f"remove etcd-{i} on h{i}: no longer part of the job" for i in range(2)]),
        # Of a host that does not answer nothing is known, and nothing done.
        (WITH, replace(seen(1, state="lost", reachable=False), unreachable={"h1": "silent"}), []),
    ],
)
def test_steps(wanted: Wanted, observed: Observed, steps: list[str]) -> None:
    assert [str(step) for step in reconcile(wanted, observed)] == steps


def test_services_go_before_nodes() -> None:
    steps = reconcile(WITH, Observed(Control(), (), supervised=True))
    assert [step.target for step in steps] == [
        "etcd-0 on h0",
        "etcd-1 on h1",
        "node 0 on localhost",
        "node 1 on localhost",
        "1",
    ]


def test_they_are_seen_by_their_containers() -> None:
    container = SeenContainer(-1, "etcd", "c", True, X, "me@here", service="etcd-0")
    one = HostState((container,), Control(), {}, there=True)
    observed = merge({"h0": one}, {"h1": "silent"}, {}, supervised=False, services={"etcd-0": "h0", "etcd-1": "h1"})
    assert observed.services == (
        SEEN[0],
        ObservedService("etcd-1", "etcd", "h1", "lost", reachable=False, reason="h1 cannot be reached"),
    )
    assert (observed.nodes, observed.owners) == ((), frozenset({"me@here"}))


def test_who_looks_around_does_not_own_the_job() -> None:
    """`run` may come from another machine, or another user."""
    node = SeenContainer(0, "trainer", "c", True, X, "me@here")
    look = SeenContainer(-1, "look", "d", True, None, "me@laptop")
    observed = merge({"h0": HostState((node, look), Control(), {}, there=True)}, {}, {0: "h0"}, supervised=False)
    assert observed.owners == frozenset({"me@here"})
