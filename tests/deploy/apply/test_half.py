"""What begins where a part of the nodes does not answer."""

from __future__ import annotations

from dataclasses import replace

from jobctl.jobspec.deploy.apply.reconcile import Wanted, reconcile
from jobctl.jobspec.deploy.model.control import Control, JobResult
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import HostRef
from tests.deploy.apply.test_reconcile import LEDGER, _plan


def test_nothing_begins_beside_most_of_the_nodes_if_these_do_not_answer() -> None:
    """An elastic job could do with one node. But the two that only this machine does not hear may be moved onto its host."""
    plan = replace(_plan(3), min_nodes=1)
    plan = replace(plan, nodes=tuple(replace(n, host=HostRef(f"h{n.index}", "10.0.0.1")) for n in plan.nodes))
    wanted = Wanted(plan, dict.fromkeys((0, 1, 2), ArtefactId("a")), "code", anew="`jobctl restart`")
    nodes = tuple(
        ObservedNode(i, "trainer", f"h{i}", "running", artefact=ArtefactId("a"), launcher=1, generation=1)
        for i in range(3)
    )
    seen = Observed(Control(first_generation(plan), LEDGER), nodes, supervised=True)
    lost = [replace(node, state="lost", launcher=None, reachable=False) for node in nodes]
    one, two = {"h2": "not heard"}, {"h1": "not heard", "h2": "not heard"}
    most, few = replace(seen, nodes=(*nodes[:1], *lost[1:]), unreachable=two), replace(seen, unreachable=one)
    few = replace(few, nodes=(*nodes[:2], lost[2]))
    assert [str(step) for step in reconcile(wanted, most)] == [
        "wait for h1, h2: `jobctl restart`; what runs goes on until then"
    ]
    assert [step.kind for step in reconcile(wanted, few)] == ["generation"]
    stopped = replace(LEDGER, result=JobResult("stopped", "by the user", 1.0))
    ended = replace(most, control=replace(most.control, ledger=stopped))
    assert [step.kind for step in reconcile(replace(wanted, anew=None), ended)] == ["generation"]

    left = replace(most, unreachable={"h1": "not heard"}, nodes=(nodes[0], lost[1]))
    half = replace(
        left, control=replace(left.control, generation=first_generation(replace(plan, nodes=plan.nodes[:2])))
    )
    assert [step.kind for step in reconcile(wanted, half)] == ["wait"]
    # A supervisor knows of the other half that it cannot run any more.
    assert [step.kind for step in reconcile(replace(wanted, cleared=frozenset({1})), half)][-1:] == ["generation"]
