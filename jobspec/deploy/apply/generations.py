"""The next generation: who takes part is given, where they meet is found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from secrets import token_hex

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.plan.generation import (
    Generation,
    Moves,
    OldPlace,
    first_generation,
    next_generation,
    next_port,
    with_ports,
)
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class KnownPorts:
    """The ports that are free on a host, and those at which the launchers of nodes hear each other.

    `where` names the machine of the generation's port in errors.
    """

    is_free: Callable[[str, int], bool]
    where: str
    of_nodes: Mapping[int, int | None]


def choose_generation(
    plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node], ports: KnownPorts
) -> Generation:
    """Return the generation of `nodes` after `last` (the first, if None), at ports that are free. Raises DeployError."""
    try:
        made = _next(plan, last, grace, nodes, ports)
    except LookupError as error:
        raise DeployError(str(error), "end what listens there, or set `rendezvous.port`") from error
    # Its number alone does not name it: two who are cut off from each other may both begin one of that number.
    meeting = replace(made.rendezvous, id=f"{made.rendezvous.id}-{token_hex(4)}")
    members = tuple(replace(member, port=ports.of_nodes.get(member.node)) for member in made.members)
    return replace(made, rendezvous=meeting, members=members)


def _next(plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node], ports: KnownPorts) -> Generation:
    is_free = ports.is_free
    if last is not None:
        timeout = plan.recovery.host_timeout
        again = replace(last, checkpoint_dir=checkpoint_dir(plan, last), host_timeout=timeout, moves=None)
        return next_generation(again, nodes, grace=grace, free=is_free)
    first = first_generation(replace(plan, nodes=tuple(nodes)))
    host, port = first.members[0].host, first.rendezvous.port
    if is_free(host, port):
        return replace(first, members=with_ports(first.members, nodes, port, is_free))
    if plan.rendezvous.port is not None:
        raise DeployError(
            f"port {port} of `rendezvous.port` is taken on {ports.where}",
            "choose another, or leave `rendezvous.port` out: a free one is found for each generation",
        )
    port = next_port(plan.run_id, 1, lambda port: is_free(host, port))
    joining = with_ports(first.members, nodes, port, is_free)
    return replace(first, members=joining, rendezvous=replace(first.rendezvous, port=port))


def checkpoint_dir(plan: Plan, last: Generation) -> str | None:
    """Return the plan's checkpoint directory, or the subdirectory of it that a run with `--fresh` trains into."""
    base = plan.checkpoint.dir if plan.checkpoint else None
    inside = base is not None and (last.checkpoint_dir or "").startswith(f"{base}/")
    return last.checkpoint_dir if inside else base


def moves_of(generation: Generation, observed: Observed, failed: Collection[str]) -> Moves | None:
    """Return where nodes of earlier generations may still run: on hosts that do not answer, or could not do their part.

    On all others, their containers are removed before a generation begins. With etcd its leases decide.
    """
    last = observed.control.generation
    if last is None or generation.etcd_decides:
        return None
    homes, unseen = {m.node: m.host for m in generation.members}, {*observed.unreachable, *failed}
    places = {OldPlace(m.node, m.host) for m in last.members if homes.get(m.node) != m.host and m.host in unseen} | {
        place
        for place in (last.moves.places if last.moves else ())
        if place.host != homes.get(place.node) and not _has_begun(place.node, last, observed)
    }
    if not places:
        return None
    before, moved = _voters(last), {place.node for place in places}
    new = _voters(generation) - before - moved  # their launchers are clear, though they were not there before
    voters = max(len(before), last.moves.voters if last.moves else 0) + 2 * len(new)  # so these do not count
    return Moves(tuple(sorted(places, key=lambda place: (place.node, place.host))), voters)


def longest_lease(generation: Generation, observed: Observed) -> float | None:
    """Return for how long launchers may hold leases of earlier orders, None where that is no longer than in this one.

    A launcher that has not heard of a lower `host_timeout` keeps the higher one. It may be any that was not seen in the
    last order, or that is at an old place.
    """
    last = observed.control.generation
    if last is None:
        return None
    left = generation.moves is None and all(_has_begun(member.node, last, observed) for member in last.members)
    longest = last.host_timeout if left else last.lease_limit
    return longest if longest > generation.host_timeout else None


def _has_begun(node: int, last: Generation, observed: Observed) -> bool:
    """Say whether a node has begun where it has moved to: then most are clear of its old place, and stay so."""
    seen, home = observed.node(node), observed.control.placement.get(node)
    return seen is not None and seen.reachable and seen.host == home and seen.generation >= last.lease_began.number


def _voters(generation: Generation) -> set[int]:
    return {member.node for member in generation.members if "trainer" in member.roles}
