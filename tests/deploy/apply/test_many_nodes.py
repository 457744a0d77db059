"""What a comparison of a large job costs: how often it goes through all nodes does not depend on how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.reconcile import Wanted, reconcile
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import HostRef
from tests.deploy.apply.test_reconcile import LEDGER, NEW, PLAN, A


class Counted(tuple[Any, ...]):
    """A tuple that counts how often somebody goes through it."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.passes += 1
        return super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        return iter(Counted(self[::-1]))


def passes(count: int, artefact: Any, home: str, changes: dict[str, Any]) -> tuple[int, int]:
    """Return how often all nodes are looked at, and how many steps there are, where each of them has `changes`."""
    nodes = [replace(PLAN.nodes[0], index=i, host=HostRef(f"h{i}", f"10.0.0.{i}")) for i in range(count)]
    generation = first_generation(replace(PLAN, nodes=tuple(nodes)))
    runs = [ObservedNode(i, "trainer", f"h{i}", "running", artefact=A, launcher=1, generation=1) for i in range(count)]
    seen = Counted(replace(node, **changes) for node in runs)
    control = Control(replace(generation, members=Counted(generation.members)), LEDGER)
    there = Counted(replace(node, host=HostRef(f"{home}{node.index}", "10.0.1.1")) for node in nodes)
    wanted = Wanted(replace(PLAN, nodes=there), dict.fromkeys(range(count), artefact), "code")
    Counted.passes = 0
    steps = reconcile(wanted, Observed(control, seen, supervised=True))
    return Counted.passes, len(steps)


DEAD = {"launcher": None, "artefact": None}


@pytest.mark.parametrize(
    ("artefact", "home", "changes"),
    [
        (A, "h", {}),
        (NEW, "h", {}),
        (A, "h", {**DEAD, "state": "failed"}),
        (A, "h", {**DEAD, "state": "exited"}),
        (A, "other", {"container": "1"}),
    ],
    ids=["nothing", "changed", "dead", "stopped", "moved"],
)
def test_nodes_are_gone_through_as_often_for_many_as_for_few(artefact: Any, home: str, changes: dict[str, Any]) -> None:
    (few, steps_of_few), (many, steps_of_many) = (passes(count, artefact, home, changes) for count in (4, 40))
    assert (steps_of_few >= 4, steps_of_many >= 40) == ((bool(changes) or artefact == NEW),) * 2
    assert few == many
