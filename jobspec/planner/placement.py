"""Which node goes to which host, and with which of the host's devices. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import TRAINERS_ONLY, Role
from jobctl.jobspec.plan import types
from jobctl.jobspec.planner.context import PlanError, Request
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.spec.hosts import Host
    from jobctl.jobspec.spec.model import Spec


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one node on a host, with the devices that are its own (None: not known), and the roles it takes (all, if none)."""

    host: types.HostRef
    slots: tuple[int, ...] | None
    interface: str | None
    roles: tuple[str, ...] = ()

    def takes(self, role: str) -> bool:
        return not self.roles or role in self.roles


@dataclass(frozen=True, slots=True)
class Task:
    """One node: what it does where, in `nproc` processes (None: one on each device)."""

    role: str
    place: Place
    nproc: int | None = None


def local_hosts(nodes: int) -> tuple[types.HostRef, ...]:
    """Return where the nodes of a job on this machine live: node i at 127.0.0.(i+2)."""
    return tuple(types.HostRef("localhost", _loopback(i + 2)) for i in range(nodes))


def _loopback(number: int) -> str:
    return f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def tasks_on_this_machine(request: Request) -> list[Task]:
    """Return the nodes of a job of target `local`, which share this machine's devices."""
    devices = request.devices.get("localhost", (request.spec.devices.count or 0) * request.most or None)
    return _dealt(request.roles, _local_places(request.most, devices), request.hosts)


def tasks_on_hosts(request: Request) -> list[Task]:
    """Return the nodes of a job on the hosts that they have already, or on the first that have room."""
    roles, placement = request.roles, request.placement.nodes
    hosts = _with_enough(equipped(request.hosts, request.devices), request.spec.devices.count)
    if placement and roles == TRAINERS_ONLY:
        return _dealt(roles, _placed(_places(request.spec, hosts, spares=True), placement), hosts)
    tasks = _dealt(roles, _first_places(request, hosts), hosts)
    return _moved(tasks, roles, hosts, placement) if placement else tasks


def tasks_on_spares(hosts: Sequence[Host]) -> list[Task]:
    """Return what a node would do on each spare host that has room for one and no more."""
    able = [host for host in hosts if host.spare and host.trains and host.nodes == 1]
    return [Task("trainer", place) for host in able for place in _rooms(host)]


def equipped(hosts: Sequence[Host], counts: Mapping[str, int]) -> Sequence[Host]:
    """Return hosts with what was counted on them, where their lines say nothing.

    A host that could not be counted is taken for one like the smallest of the others, with a device for each of its nodes:
    it is not up, or has no driver, so nothing starts there before somebody has looked at it again.
    """
    if not counts:
        return hosts
    said = [host.slots if host.devices is None else len(host.devices) for host in hosts]
    least = min([*counts.values(), *(number for number in said if number is not None)])
    return [
        replace(host, slots=counts.get(host.name, max(least, host.nodes)))
        if host.slots is None and host.devices is None
        else host
        for host in hosts
    ]


def _with_enough(hosts: Sequence[Host], count: int | None) -> Sequence[Host]:
    """Return hosts, those whose devices nobody knows with `count` for each of their nodes, so that no two share one."""
    return [
        replace(host, slots=count * host.nodes) if count and host.slots is None and host.devices is None else host
        for host in hosts
    ]


def _local_places(nodes: int, devices: int | None) -> list[Place]:
    slots = None if devices is None else tuple(range(devices))
    shares = _split(slots, nodes)
    return [Place(host, share, None) for host, share in zip(local_hosts(nodes), shares, strict=True)]


def _first_places(request: Request, hosts: Sequence[Host]) -> list[Place]:
    nodes, most = request.spec.nodes, request.most
    places = _places(request.spec, hosts, spares=False)
    least = most if most < nodes.max else nodes.min
    if len(places) < least:
        raise PlanError(
            "too-few-hosts",
            f"the job needs {least} nodes and the hosts file has room for {len(places)}",
            ("nodes",),
            "add hosts, or lower `nodes`",
        )
    return places[:most]


def _places(spec: Spec, hosts: Sequence[Host], *, spares: bool) -> list[Place]:
    """Return room on all hosts that take a role of the job; on spares only where those may be used."""
    takes = ("trainer", "server") if spec.ps else ("trainer",)
    able = [host for host in hosts if any(host.takes(role) for role in takes)]
    return [place for host in able if spares or not host.spare for place in _rooms(host)]


def _placed(rooms: list[Place], placement: Mapping[int, str]) -> list[Place]:
    chosen = []
    for node in sorted(placement):
        room = next((room for room in rooms if room.host.name == placement[node]), None)
        if room is None:
            raise PlanError("no-room", f"node {node} is on {placement[node]}, which the hosts file has no room on")
        rooms.remove(room)
        chosen.append(room)
    return chosen


def _rooms(host: Host) -> list[Place]:
    slots = host.devices if host.devices is not None else (None if host.slots is None else tuple(range(host.slots)))
    ref = types.HostRef(host.name, host.address)
    return [Place(ref, share, host.interface, host.roles) for share in _split(slots, host.nodes)]


def _dealt(roles: Sequence[Role], places: Sequence[Place], hosts: Sequence[Host]) -> list[Task]:
    """Deal the processes of each role to places, one after the other, as many times round as it takes."""
    tasks = []
    for role in roles:
        if role.total is None:
            tasks += [Task(role.name, place) for place in places]
            continue
        able = [place for place in places if place.takes(role.name)]
        if role.anywhere:
            able = _kept(hosts, role.name) or able or list(places)
        if not able:
            raise PlanError(
                "no-host-for-role",
                f"the job needs {role.total} {role.name}s, and no host of the first {len(places)} takes any",
                ("ps",),
                f"give one `roles={role.name}`, or no roles",
            )
        shares = [len(range(first, role.total, len(able))) for first in range(len(able))]
        tasks += [Task(role.name, place, share) for place, share in zip(able, shares, strict=True) if share]
    return tasks


def _kept(hosts: Sequence[Host], role: str) -> list[Place]:
    """Return the places of hosts whose lines name a role, whether or not they take others."""
    return [place for host in hosts if role in host.roles and not host.spare for place in _rooms(host)]


def _moved(
    tasks: Sequence[Task], roles: Sequence[Role], hosts: Sequence[Host], placement: Mapping[int, str]
) -> list[Task]:
    """Return tasks on the hosts where their nodes are; a host has room for a node of each role."""
    found, taken = [], set[tuple[str, int]]()
    anywhere = {role.name for role in roles if role.anywhere}
    rooms = [(number, place) for host in hosts for number, place in enumerate(_rooms(host))]
    for index, task in enumerate(tasks):
        name = placement.get(index, task.place.host.name)
        able = [(n, place) for n, place in rooms if place.takes(task.role) or task.role in anywhere]
        here = [(n, place) for n, place in able if place.host.name == name]
        free = [(n, place) for n, place in here if (f"{name} {task.role}", n) not in taken]
        if not free:
            raise PlanError("no-room", f"node {index} is on {name}, which the hosts file has no room on")
        taken.add((f"{name} {task.role}", free[0][0]))
        found.append(replace(task, place=free[0][1]))
    return found


def _split(slots: tuple[int, ...] | None, shares: int) -> list[tuple[int, ...] | None]:
    """Deal a host's devices to its nodes, equally, neighbours together; what does not divide stays unused."""
    if slots is None:
        return [None] * shares
    size = len(slots) // shares
    return [slots[i * size : (i + 1) * size] for i in range(shares)]
