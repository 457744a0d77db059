"""Wanted against observed: the steps that lead from one to the other, each with its cause.

Pure. `plan`, `up`, `restart`, `stop`, `down` and the supervisor all go through it: there is one way to change the
world, and one place that says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jobctl.jobspec.deploy.observed import LAUNCHER_KILLED, Observed, ObservedNode, phase
from jobctl.jobspec.plan.types import Node, Plan

Kind = Literal["send", "remove", "replace", "start", "generation", "supervise"]

# The order in which steps are applied: launchers stand ready before they are handed a generation.
_ORDER: dict[Kind, int] = {"send": 0, "remove": 1, "replace": 2, "start": 3, "generation": 4, "supervise": 5}


@dataclass(frozen=True, slots=True)
class Step:
    """One change: what is done, to whom, and why. Prints as one line.

    `node` is the node's number where the step is about one. `grace` is how long (seconds) processes get between
    SIGTERM and SIGKILL where the step ends some.
    """

    kind: Kind
    target: str
    cause: str
    node: int | None = None
    grace: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.target}: {self.cause}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should run: a plan, the hash of each node's artefact, and of the code.

    `anew` asks for a new generation whatever runs, in these words; `replace` for new launchers of these nodes.
    """

    plan: Plan
    artefacts: Mapping[int, str]
    code: str | None
    anew: str | None = None
    replace: frozenset[int] = frozenset()
    supervise: bool = True
    grace: float | None = None


def reconcile(wanted: Wanted, observed: Observed) -> tuple[Step, ...]:
    """Return the steps from `observed` to `wanted`, none if nothing has to change."""
    now, _ = phase(observed)
    changed = _changes(wanted, observed)
    if now == "succeeded" and not changed and not wanted.anew:
        return ()
    steps = [step for node in wanted.plan.nodes for step in _node_steps(wanted, observed, node)]
    steps += _extra_nodes(wanted, observed)
    cause = _generation_cause(wanted, observed, changed)
    if cause:
        number = observed.control.generation.number + 1 if observed.control.generation else 1
        grace = wanted.plan.stop_grace if wanted.grace is None else wanted.grace
        steps.append(Step("generation", str(number), cause, grace=grace))
    if wanted.supervise and not observed.supervised:
        steps.append(Step("supervise", wanted.plan.job, "no supervisor runs"))
    return tuple(sorted(steps, key=lambda step: _ORDER[step.kind]))


def _changes(wanted: Wanted, observed: Observed) -> str | None:
    """Say what is not as the current generation was started with, None if all is."""
    generation = observed.control.generation
    if generation is None:
        return None
    nodes = tuple(node.index for node in wanted.plan.nodes)
    before = tuple(member.node for member in generation.members)
    if nodes != before:
        return f"nodes changed from {len(before)} to {len(nodes)}"
    differing = [node for node in wanted.plan.nodes if _differs(wanted, observed, node)]
    if differing:
        return "the spec changed"
    if wanted.code != observed.control.ledger.code:
        return "the code changed"
    return None


def _differs(wanted: Wanted, observed: Observed, node: Node) -> bool:
    seen = observed.node(node.index)
    return seen is not None and seen.artefact is not None and seen.artefact != wanted.artefacts[node.index]


def _node_steps(wanted: Wanted, observed: Observed, node: Node) -> list[Step]:
    seen = observed.node(node.index)
    target = f"node {node.index} on {node.host.name}"
    if seen is not None and seen.alive:
        if node.index in wanted.replace:
            return [Step("replace", target, wanted.anew or "asked for", node.index, wanted.plan.stop_grace)]
        if _differs(wanted, observed, node):
            return [Step("replace", target, "the spec changed", node.index, wanted.plan.stop_grace)]
        return []
    changed = _changes(wanted, observed)
    if seen is not None and _done(observed, seen):
        cause = _generation_cause(wanted, observed, changed)
        return [Step("start", target, cause, node.index)] if cause else []
    killed = seen is not None and seen.state == "failed" and seen.reason == LAUNCHER_KILLED
    return [Step("start", target, LAUNCHER_KILLED if killed else "not running", node.index)]


def _done(observed: Observed, node: ObservedNode) -> bool:
    generation = observed.control.generation
    return generation is not None and node.generation == generation.number and node.state == "exited"


def _extra_nodes(wanted: Wanted, observed: Observed) -> list[Step]:
    indices = {node.index for node in wanted.plan.nodes}
    return [
        Step(
            "remove",
            f"node {node.node} on {node.host}",
            "no longer part of the job",
            node.node,
            wanted.plan.stop_grace,
        )
        for node in observed.nodes
        if node.node not in indices
    ]


def _generation_cause(wanted: Wanted, observed: Observed, changed: str | None) -> str | None:
    """Say why a new generation has to begin, None if the current one goes on."""
    generation, ledger = observed.control.generation, observed.control.ledger
    if wanted.anew:
        return wanted.anew
    if generation is None:
        return "the job is new"
    if changed:
        return changed
    if ledger.result is not None and phase(observed)[0] != "succeeded":
        return f"the job had {ledger.result.phase}" if ledger.result.phase == "failed" else "the job was stopped"
    if generation.command != "run" and phase(observed)[0] != "succeeded":
        return "a command was killed while it stopped the job"
    broken = [node for node in observed.members if node.state in ("failed", "lost")]
    if broken:
        return f"node {broken[0].node}: {broken[0].reason or 'failed'}"
    gone = [n for n in observed.members if not n.alive and n.generation == generation.number and n.state != "exited"]
    return f"node {gone[0].node} is gone" if gone else None
