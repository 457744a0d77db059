"""Wanted against observed: the steps that lead from one to the other, each with its cause.

Pure. `plan`, `up`, `restart`, `stop`, `down` and the supervisor all go through it: there is one way to change the
world, and one place that says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Literal

from jobctl.jobspec.deploy.apply.changes import Changed, causes
from jobctl.jobspec.deploy.model.observed import LAUNCHER_KILLED, Observed, ObservedNode, is_behind, phase
from jobctl.jobspec.deploy.model.spare_state import SpareState
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Origin
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.records import dataclass

Kind = Literal[
    "prepare", "remove", "replace", "change", "create", "start", "hand-over", "generation", "wait", "supervise"
]

# The order in which steps are applied: launchers stand ready before they are handed a generation.
ORDER: dict[Kind, int] = {
    "prepare": 0,
    "remove": 1,
    "replace": 2,
    "change": 3,
    "create": 4,
    "start": 5,
    "hand-over": 6,
    "generation": 7,
    "wait": 8,
    "supervise": 9,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One change: what is done, to whom, and why. Prints as one line.

    `node` is the node's number where the step is about one, `host` the name of the host where it is done. `grace` is
    how long (seconds) processes get between SIGTERM and SIGKILL where the step ends some.
    """

    kind: Kind
    target: str
    cause: str
    node: int | None = None
    grace: float = 0.0
    host: str = ""
    stale: bool = False  # what is removed has no part in what runs
    service: str | None = None  # the service that the step is about
    generation: int | None = None  # the number of the generation that the step begins
    spare: bool = False  # whether it is about the launcher that waits on a spare host

    def __str__(self) -> str:
        return f"{self.kind} {self.target}: {self.cause}"

    def fields(self) -> dict[str, str | int]:
        """Return the step as an event's fields, those that say nothing left out."""
        named = {"node": self.node, "host": self.host or None, "service": self.service, "generation": self.generation}
        return {"step": self.kind, "cause": self.cause, **{k: v for k, v in named.items() if v is not None}}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should run: a plan, what identifies each node's artefact, and the hash of the code.

    `anew` asks for another generation, whatever runs now, in these words; `replace` for new launchers of these nodes. Without
    `begins` the current generation goes on: it is completed, and no other one begins. `cleared`
    are nodes that cannot run where they were, although nobody can look; `excluded` hosts that the job must not use;
    `keep_budget`: a new generation is neither a person's wish nor a failure's fault. `changed` are the keys of the spec
    that are not as what runs was started with, None if that is not known.
    """

    plan: Plan
    artefacts: Mapping[int, ArtefactId]
    code: str | None
    anew: str | None = None
    replace: frozenset[int] = frozenset()
    begins: bool = True
    supervise: bool = True
    grace: float | None = None
    cleared: frozenset[int] = frozenset()
    excluded: frozenset[str] = frozenset()
    keep_budget: bool = False
    changed: tuple[Changed, ...] | None = None
    services: Mapping[str, ArtefactId] = field(default_factory=dict)  # what identifies the artefact of each
    # What identifies the files that each spare host needs; None: spares stay as they are.
    spares: Mapping[str, str] | None = None
    spare_artefacts: Mapping[str, ArtefactId] = field(default_factory=dict)  # of each hot spare, by host
    origin: Origin | None = None  # who wants it
    # On which hosts nodes get ready that a change brings, which is made later: they are left alone.
    joining: Mapping[int, str] = field(default_factory=dict)

    def usable(self, observed: Observed) -> list[Node]:
        """Return the nodes that can take part: of hosts that answer, and that run nowhere else."""
        out = {*observed.unreachable, *observed.control.ledger.excluded_hosts, *self.excluded}
        there = [node for node in self.plan.nodes if node.host.name not in out]
        return [node for node in there if self.silent_home(node, observed) is None]

    def silent_home(self, node: Node, observed: Observed) -> str | None:
        """Return the other host, which does not answer, where a node may still run; None if there is none."""
        seen = observed.node(node.index)
        lost = seen is not None and not seen.reachable and seen.host != node.host.name
        return seen.host if seen is not None and lost and node.index not in self.cleared else None


def reconcile(wanted: Wanted, observed: Observed) -> tuple[Step, ...]:
    """Return the steps from `observed` to `wanted`, none if nothing has to change."""
    now, _ = phase(observed)
    if not wanted.begins and observed.control.ordered_to_end:
        return tuple(_hand_overs(observed))
    changed = changes(wanted, observed)
    if now == "succeeded" and not changed and not wanted.anew:
        return ()
    cause = _generation_cause(wanted, observed, changed)
    waits = _wait(wanted, observed, changed)
    steps = [] if waits and changed else [*_service_steps(wanted, observed)]
    steps += [step for node in wanted.usable(observed) for step in _node_steps(wanted, observed, node, changed, cause)]
    steps += _extra_nodes(wanted, observed)
    steps += _spare_steps(wanted, observed)
    if waits:  # what runs goes on until all that the change needs is there
        steps = [
            step
            for step in steps
            if step.kind == "prepare" or (step.stale and not step.spare) or (step.kind == "start" and not changed)
        ]
        steps.append(waits)
    if cause:
        number = observed.control.generation.number + 1 if observed.control.generation else 1
        grace = wanted.plan.stop_grace if wanted.grace is None else wanted.grace
        steps.append(Step("generation", str(number), cause, grace=grace, generation=number))
    else:
        steps += _hand_overs(observed)
    if wanted.supervise and (why := _lacks_supervisor(wanted, observed, begins=cause is not None)):
        steps.append(Step("supervise", wanted.plan.job, why))
    return tuple(sorted(steps, key=lambda step: ORDER[step.kind]))


def _lacks_supervisor(wanted: Wanted, observed: Observed, *, begins: bool) -> str | None:
    """Say why a supervisor has to begin here, None if one watches the job, and goes on to."""
    if not observed.supervised:
        return "no supervisor runs"
    generation = observed.control.generation
    origin = generation.origin if generation is not None else None
    if begins and origin is not None and wanted.origin is not None and origin.id != wanted.origin.id:
        return f"the one on {origin.machine} steps aside for another plan"
    return None


def _wait(wanted: Wanted, observed: Observed, changed: str | None) -> Step | None:
    """Return a step that waits for hosts: what runs is not ended for a generation that too few nodes could begin."""
    control = observed.control
    if not wanted.begins or control.generation is None or control.ordered_to_end:
        return None
    if not (changed or wanted.anew) or not _are_too_few(wanted, observed):
        return None
    missing = ", ".join(sorted(_waited_for(wanted, observed)))
    return Step("wait", f"for {missing}", f"{changed or wanted.anew}; what runs goes on until then")


def _waited_for(wanted: Wanted, observed: Observed) -> set[str]:
    """Return the hosts that nothing can begin without: those that lack, and silent ones where nodes may still run."""
    usable = {node.index for node in wanted.usable(observed)}
    lack = [node for node in wanted.plan.nodes if node.index not in usable]
    homes = {node.host.name if (old := wanted.silent_home(node, observed)) is None else old for node in lack}
    silent = half_is_silent(observed, wanted.cleared)
    return homes | ({*observed.control.placement.values()} & {*observed.unreachable} if silent else set())


def _are_too_few(wanted: Wanted, observed: Observed) -> bool:
    """Say whether nothing can begin: too few nodes can take part, or too few of those that run answer."""
    few = len(wanted.usable(observed)) < wanted.plan.min_nodes
    return few or half_is_silent(observed, wanted.cleared)


def half_is_silent(observed: Observed, cleared: frozenset[int] = frozenset()) -> bool:
    """Say whether half of the nodes that run, or more, are on hosts that do not answer: they may go on without us.

    Then nothing begins beside them, also where an elastic job could do with fewer: a supervisor on their side needs no
    more than half to move there what is here, and it would run twice. Nodes that are `cleared` cannot go on, wherever
    they are. With etcd its leases decide.
    """
    generation = observed.control.generation
    if generation is None or generation.etcd_decides or observed.control.ordered_to_end:
        return False
    voters = [member for member in generation.members if "trainer" in member.roles]
    silent = sum(one.host in observed.unreachable and one.node not in cleared for one in voters)
    return 0 < len(voters) <= 2 * silent


def _service_steps(wanted: Wanted, observed: Observed) -> Iterator[Step]:
    """Yield what has to be done about services: before nodes, which wait for them."""
    homes = {service.name: service.host.name for service in wanted.plan.services}
    for name, host in homes.items():
        seen = next((one for one in observed.services if (one.name, one.host) == (name, host)), None)
        if host in observed.unreachable:
            continue
        if seen is not None and seen.artefact is not None and not seen.artefact.stands_for(wanted.services.get(name)):
            yield _service_step("replace", name, host, "the spec or the hosts changed")
        elif seen is None or seen.state != "running":
            yield _service_step("start", name, host, "not running")
    for one in observed.services:
        if one.reachable and homes.get(one.name) != one.host:
            cause = "no longer part of the job" if one.name not in homes else f"it runs on {homes[one.name]}"
            yield _service_step("remove", one.name, one.host, cause)


def _service_step(kind: Kind, name: str, host: str, cause: str) -> Step:
    return Step(kind, f"{name} on {host}", cause, host=host, service=name)


def changes(wanted: Wanted, observed: Observed) -> str | None:
    """Say what is not as the current generation was started with, None if all is."""
    generation = observed.control.generation
    if generation is None:
        return None
    before = tuple(member.node for member in generation.members)
    # A node that a host which does not answer would have is not there, and one that it has is not gone.
    usable = {node.index for node in wanted.usable(observed)}
    nodes = tuple(node.index for node in wanted.plan.nodes if node.index in usable or node.index in before)
    if nodes != before:
        return f"nodes changed from {len(before)} to {len(nodes)}"
    if wanted.code != observed.control.ledger.code:
        return "the code changed"
    moving = {
        node.index: f"node {node.index} {words}" for node in wanted.plan.nodes if (words := _moves(observed, node))
    }
    differing = {node.index for node in wanted.plan.nodes if _differs(wanted, observed, node)} - set(moving)
    found = [*moving.values(), *([causes(wanted.changed, differing)] if differing else [])]
    return "; ".join(found) or None


def _moves(observed: Observed, node: Node) -> str | None:
    """Say from where to where a node moves that runs well; None if it stays, or does not run."""
    seen = observed.node(node.index)
    stays = seen is None or seen.host == node.host.name or not _has_a_part(observed, seen)
    return None if seen is None or stays else f"moves from {seen.host} to {node.host.name}"


def _differs(wanted: Wanted, observed: Observed, node: Node) -> bool:
    seen = observed.node(node.index)
    if seen is None or seen.artefact is None:
        return False
    # A node that has moved to a spare runs in the container that was there.
    fit = (wanted.artefacts[node.index], wanted.spare_artefacts.get(seen.host))
    return not any(map(seen.artefact.stands_for, fit))


def takes_over(artefacts: Mapping[str, ArtefactId], observed: Observed, host: str) -> bool:
    """Say whether a launcher waits on a spare host that becomes a node there as soon as an order says so.

    `artefacts` say what starts it, by host: one that was started from another does not count.
    """
    wanted = artefacts.get(host)
    waiting = [spare for spare in observed.spares if spare.host == host and spare.is_hot]
    return any(spare.artefact is not None and spare.artefact.stands_for(wanted) for spare in waiting)


def _node_steps(wanted: Wanted, observed: Observed, node: Node, changed: str | None, begins: str | None) -> list[Step]:
    """Return what has to be done about a node, where the job has `changed`, and a generation `begins`, for these reasons."""
    seen = observed.node(node.index)
    if seen is not None and seen.host != node.host.name:
        if takes_over(wanted.spare_artefacts, observed, node.host.name):
            return []
        if not wanted.begins and _has_a_part(observed, seen):
            return []
        return [_step("start", node, f"it moves from {seen.host}")]
    if seen is not None and seen.alive:
        cause = wanted.anew or "asked for" if node.index in wanted.replace else None
        if cause is None and wanted.begins and _differs(wanted, observed, node):
            cause = changed or causes(wanted.changed, {node.index})
        if cause is None and wanted.begins and _was_told_to_end(observed):
            cause = "it was told to end: `down` was cut off"  # and would end in the midst of what begins now
        return [_step("replace", node, cause, wanted.plan.stop_grace)] if cause else []
    if seen is not None and _done(observed, seen) and (begins or not seen.broken):
        # One that somebody has stopped has not ended well, and may come back alone.
        return [_step("start", node, begins)] if begins else []
    killed = seen is not None and seen.state == "failed" and seen.reason == LAUNCHER_KILLED
    return [_step("start", node, LAUNCHER_KILLED if killed else "not running")]


def _was_told_to_end(observed: Observed) -> bool:
    generation = observed.control.generation
    return generation is not None and generation.command == "finish"


def _step(kind: Kind, node: Node, cause: str, grace: float = 0.0) -> Step:
    return Step(kind, f"node {node.index} on {node.host.name}", cause, node.index, grace, node.host.name)


def _done(observed: Observed, node: ObservedNode) -> bool:
    generation = observed.control.generation
    return generation is not None and node.generation == generation.number and node.state == "exited"


def _extra_nodes(wanted: Wanted, observed: Observed) -> list[Step]:
    homes = homes_of(wanted.plan)
    grace, cause = wanted.plan.stop_grace, "no longer part of the job"
    # One that no order has had was to join: nothing of what runs ends with it.
    here = {n.node: n.node in observed.control.placement for n in observed.nodes}
    extra = [
        Step("remove", f"node {n.node} on {n.host}", cause, n.node, grace, n.host, stale=not here[n.node])
        for n in observed.nodes
        if n.node not in homes and n.reachable and wanted.joining.get(n.node) != n.host
    ]
    moved = [
        _leave(wanted, observed, n, homes.get(n.node, "another host"))
        for n in (*observed.strays, *(n for n in observed.nodes if n.container is not None and n.node in homes))
        if n.reachable and n.host != homes.get(n.node) and (wanted.begins or not _has_a_part(observed, n))
    ]
    return [*extra, *moved]


def _leave(wanted: Wanted, observed: Observed, node: ObservedNode, home: str) -> Step:
    """Return the step that removes a node where it does not belong.

    One that runs well ends with all others, and in its time: `up` has other hosts for it. After a failure nobody waits.
    """
    ends, cause = _has_a_part(observed, node) and wanted.grace is None, f"it runs on {home}"
    grace = wanted.plan.stop_grace if ends else 0.0
    return Step("remove", f"node {node.node} on {node.host}", cause, node.node, grace, host=node.host, stale=not ends)


def _has_a_part(observed: Observed, node: ObservedNode) -> bool:
    """Say whether a node has not failed where the current generation has it."""
    return node.alive and not node.broken and observed.control.placement.get(node.node) == node.host


def _spare_steps(wanted: Wanted, observed: Observed) -> list[Step]:
    """Give spares what a node that moves there needs: nobody else can when it does."""
    if wanted.spares is None:
        return []
    cold = [
        Step("prepare", host, "a spare that has not got what a node needs", host=host)
        for host, needed in wanted.spares.items()
        if observed.prepared.get(host, needed) != needed
    ]
    return [*cold, *(step for spare in observed.spares for step in _hot_spare_steps(wanted, spare))]


def _hot_spare_steps(wanted: Wanted, spare: SpareState) -> Iterator[Step]:
    """Yield what has to be done about the launcher that waits on a spare host."""
    kinds: dict[bool, tuple[Kind, str]] = {
        True: ("start", "a node can move there without starting anything then"),
        False: ("replace", "what a node needs there changed"),
    }
    artefact = wanted.spare_artefacts.get(spare.host) if spare.host in (wanted.spares or ()) else None
    fits = artefact is None if spare.artefact is None else spare.artefact.stands_for(artefact)
    if spare.state == "unreachable" or fits:
        return
    kind, cause = kinds[spare.artefact is None] if artefact is not None else ("remove", "no node moves there at once")
    # None of them has a part in what runs.
    yield Step(kind, f"spare {spare.host}", cause, host=spare.host, spare=True, stale=kind != "start")


def _hand_overs(observed: Observed) -> list[Step]:
    """Hand the generation to hosts that missed it: the process that began it was killed, or cut off from them."""
    generation = observed.control.generation
    if generation is None:
        return []
    target = f"generation {generation.number}"
    return [Step("hand-over", f"{target} to {host}", "it has an older one", host=host) for host in observed.outdated]


def _generation_cause(wanted: Wanted, observed: Observed, changed: str | None) -> str | None:
    """Say why a new generation has to begin, None if the current one goes on."""
    generation, ledger = observed.control.generation, observed.control.ledger
    if not wanted.begins or _are_too_few(wanted, observed):
        return None  # it would wait for nodes that cannot come, or run beside them
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
    broken = [node for node in observed.members if node.broken and not is_behind(node, generation)]
    if broken:
        return f"node {broken[0].node}: {broken[0].reason or 'failed'}"
    here = [n for n in observed.members if n.reachable and not n.alive]
    gone = [n for n in here if n.generation == generation.number and n.state != "exited"]
    return f"node {gone[0].node} is gone" if gone else None
