"""What was seen on each host of a job, and the one picture that this makes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Control, age, begun_by_launchers, newest, role_of
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.observed import FULL, Observed, ObservedNode, ObservedService, State
from jobctl.jobspec.deploy.model.report_reader import parse_node
from jobctl.jobspec.deploy.model.spare_state import SPARE, idle_spare, spare_container
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.records import dataclass

NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class HostState:
    """What is on one host of a job: its containers, control file and ledger, and each node's report.

    `blind`: its engine does not answer, and the containers are those it once told of. `prepared` is what `HostJob.note_prepared`
    has put down. `full`: its disk has no room left for the job's own files. `unreadable` says which of the run's files cannot be
    read: then the host counts as one that does not answer, and only its containers are known.
    """

    containers: tuple[SeenContainer, ...]
    control: Control
    reports: Mapping[int, Json]
    supervised: bool = False
    directories: frozenset[int] = field(default_factory=frozenset)  # nodes that have one
    there: bool = False  # whether the job has a work directory
    blind: bool = False
    prepared: str | None = None
    full: bool = False
    unreadable: HostError | None = None
    spare: Json | None = (
        None  # what a launcher reports that waits to become a node, {} before it does, None where none was
    )

    @property
    def waits(self) -> bool:
        """Whether a launcher waits here that can become a node."""
        return idle_spare("", self.containers, self.spare).is_hot

    def has(self, node: int) -> bool:
        """Whether a container of `node` is here, running or not."""
        return any(container.node == node for container in self.containers)

    def started(self, node: int) -> bool:
        """Whether the launcher of `node` has reported since its container was started."""
        return _state(self, node) not in ("launching", "")

    def ended(self, node: int) -> bool:
        """Whether the launcher of `node` has reported how its node ended."""
        return _state(self, node) in ("succeeded", "failed", "stopped")


# Makes one picture of what was seen on hosts, and of those that are silent.
PutTogether: TypeAlias = Callable[[Mapping[str, HostState], Mapping[str, DeployError]], Observed]


def _state(seen: HostState, node: int) -> str:
    report = seen.reports.get(node)
    return str(report.get("state", "")) if report else ""


def unreadable(seen: Mapping[str, HostState]) -> dict[str, HostError]:
    """Return the hosts on which a file of the run cannot be read, and why."""
    return {host: one.unreadable for host, one in seen.items() if one.unreadable is not None}


def control_of(seen: Mapping[str, HostState], before: Control | None = None) -> Control:
    """Return the newest generation and ledger that a host has, or had `before`.

    If the job was taken down since, and brought up again, both are newer on its hosts: they began later.
    """
    known = [one.control for one in seen.values()]
    known += [
        begun_by_launchers(report) for one in seen.values() for report in one.reports.values() if report.get("order")
    ]
    return newest([*known, before] if before is not None else known)


def merge(
    seen: Mapping[str, HostState],
    unreachable: Mapping[str, str],
    planned: Mapping[int, str],
    *,
    supervised: bool,
    before: Control | None = None,
    services: Mapping[str, str] = NONE,
) -> Observed:
    """Return the job as `seen` on its hosts, by their names.

    `unreachable` says why others did not answer, `planned` on which host the plan has each node; `supervised`: a
    supervisor runs here, whatever the hosts say. `before`: what was once seen on hosts that may be unreachable now.
    `services` is `planned` for services, by their names.
    """
    # Not of `run`, which is beside the job, and may come from another machine.
    owners = frozenset(c.owner for one in seen.values() for c in one.containers if c.owner and c.role != "look")
    unreachable = {**unreachable, **{host: error.message for host, error in unreadable(seen).items()}}
    seen = {host: one for host, one in seen.items() if host not in unreachable}
    control = control_of(seen, before)
    members = control.placement
    homes = {**planned, **members}
    seen = _told_once(seen, homes, services)
    found = _on_hosts(seen, control)
    chosen = _chosen(found, homes, control, unreachable)
    return Observed(
        control,
        tuple(chosen[index] for index in sorted(chosen)),
        supervised=supervised or any(one.supervised for one in seen.values()),
        unreachable=unreachable,
        outdated=tuple(sorted(host for host in {*members.values()} & set(seen) if _is_outdated(seen[host], control))),
        strays=_strays(found, chosen, planned),
        owners=owners,
        services=tuple(_services(seen, unreachable, services)),
        prepared={host: one.prepared for host, one in seen.items()},
        obstacles={host: FULL for host, one in seen.items() if one.full},
    )


def _on_hosts(seen: Mapping[str, HostState], control: Control) -> list[ObservedNode]:
    """Return the nodes on all hosts, also those that launchers of spare hosts are about to become.

    Between the generation that has a node there and the first report of it, its launcher is the one that waits.
    """
    found = [node for host, one in seen.items() for node in _nodes(host, one, control)]
    there = {(node.node, node.host) for node in found if node.container is not None}
    places = [place for place in control.placement.items() if place[1] in seen and place not in there]
    begin = [_about_to_begin(node, host, seen[host], control) for node, host in places if seen[host].waits]
    left = {(node.node, node.host) for node in begin}  # what an earlier life of such a node has left there is not it
    return [node for node in found if (node.node, node.host) not in left] + begin


def _about_to_begin(node: int, host: str, seen: HostState, control: Control) -> ObservedNode:
    container, spare = spare_container(seen.containers), idle_spare(host, seen.containers, seen.spare)
    made = ObservedNode(node, role_of(control, node), host, "starting", spare.artefact, launcher=1, port=spare.port)
    return replace(made, container=container.id if container else None)


def _chosen(
    found: Sequence[ObservedNode], homes: Mapping[int, str], control: Control, unreachable: Mapping[str, str]
) -> dict[int, ObservedNode]:
    """Return each node once, by its number: where it belongs, or where it runs; `homes`: on which host each belongs."""
    members = control.placement
    chosen = {
        node.node: node for node in sorted(found, key=lambda node: (node.host == homes.get(node.node), node.alive))
    }
    for index, host in homes.items():
        if host in unreachable and (index not in chosen or index in members):  # what is elsewhere is left from before
            reason = f"{host} cannot be reached"
            chosen[index] = ObservedNode(index, role_of(control, index), host, "lost", reason=reason, reachable=False)
        elif index in members and not (index in chosen and (chosen[index].alive or chosen[index].host == host)):
            # Whatever became of it there: what an earlier life has left elsewhere is not it.
            chosen[index] = ObservedNode(index, role_of(control, index), host, "pending")
    return chosen


def _strays(
    found: Sequence[ObservedNode], chosen: Mapping[int, ObservedNode], planned: Mapping[int, str]
) -> tuple[ObservedNode, ...]:
    """Return the nodes whose containers are in a second place.

    Also that of a node which is lost where it belongs; but not that of one which is about to move there.
    """
    return tuple(
        node
        for node in found
        if chosen[node.node] is not node
        and node.container is not None
        and (chosen[node.node].reachable or planned.get(node.node) != node.host)
    )


def _told_once(
    seen: Mapping[str, HostState], homes: Mapping[int, str], services: Mapping[str, str]
) -> Mapping[str, HostState]:
    """Return `seen` with each container on one host only: two names of one machine tell of the same ones.

    It is where its node or service belongs, otherwise where it was seen first: none is a stray because of its machine's other name.
    """
    places: dict[str, list[str]] = {}
    for host, one in seen.items():
        for container in one.containers:
            if container.id:  # else it is a process of this machine
                places.setdefault(container.id, []).append(host)
    if all(len(hosts) == 1 for hosts in places.values()):
        return seen

    def place(container: SeenContainer) -> str:
        hosts = places[container.id]
        home = homes.get(container.node) if container.service is None else services.get(container.service)
        return home if home is not None and home in hosts else hosts[0]

    return {
        host: replace(one, containers=tuple(c for c in one.containers if place(c) == host))
        for host, one in seen.items()
    }


def _services(
    seen: Mapping[str, HostState], unreachable: Mapping[str, str], planned: Mapping[str, str]
) -> Iterator[ObservedService]:
    found = {(c.service, host): c for host, one in seen.items() for c in one.containers if c.service is not None}
    for (name, host), container in sorted(found.items(), key=lambda item: str(item[0])):
        state: State = "running" if container.running else "exited"
        yield ObservedService(str(name), container.role, host, state, container.artefact, container.id or None)
    for name, host in planned.items():
        if host in unreachable:
            reason = f"{host} cannot be reached"
            yield ObservedService(name, name.partition("-")[0], host, "lost", reachable=False, reason=reason)


def _nodes(host: str, seen: HostState, control: Control) -> Iterator[ObservedNode]:
    """Yield the nodes on one host, each from its container (or launcher) and what its launcher reported."""
    containers: dict[int, SeenContainer] = {}
    for container in sorted(seen.containers, key=lambda container: container.running):
        containers[container.node] = container
    for index in sorted({*containers, *seen.reports, *seen.directories}):
        if index < 0:
            continue
        found = containers.get(index)
        running = found is not None and found.running
        # Where the engine cannot tell, launchers are believed.
        believed = seen.blind and seen.started(index) and not seen.ended(index)
        alive = 1 if running or believed else None
        alive = found.pid if found is not None and found.pid is not None else alive
        role = found.role if found and found.role not in ("", SPARE) else role_of(control, index)
        node = parse_node(index, role, host, seen.reports.get(index), alive, found.artefact if found else None)
        paused = found is not None and found.paused
        yield replace(node, container=(found.id or None) if found else None, paused=paused)


def _is_outdated(seen: HostState, control: Control) -> bool:
    mine = control_of({"": seen}).generation  # what its launchers have begun without a supervisor, they have
    return control.generation is not None and (mine is None or age(mine) < age(control.generation))
