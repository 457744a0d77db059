"""One job of the commands that start its nodes, each on its host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from jobctl.jobspec.importers.common import missing_hosts
from jobctl.jobspec.importers.draft import Found, HostLine, Value
from jobctl.jobspec.importers.launchers.options import NODES_TAKEN
from jobctl.jobspec.importers.notes import to_check
from jobctl.jobspec.importers.start_command import StartCommand
from jobctl.jobspec.launcher.telling.words import counted

Job: TypeAlias = tuple[StartCommand, Found]

# What all nodes of a job have alike. `name` is that of a container, which may be told from those of other nodes.
_IDENTITY = ("framework", "mode", "nodes", "script", "module")


def merged(jobs: Sequence[Job]) -> Found:
    """Return the job that all launches are: one for each node is one job; others are noted."""
    (start, first), *rest = _by_rank(jobs)
    hosts: dict[str, HostLine] = {host.name: host for host in first.hosts}
    reached = {host.name for host in start.hosts}
    ranks = [first.rank]
    notes, different = list(first.notes), dict[str, None]()
    for launch, job in rest:
        unlike = _differences(job.fields, first.fields)
        if not unlike or (_is_node_of(job, first) and _is_new((launch, job), reached, ranks, first)):
            hosts.update({host.name: host for host in job.hosts if host.name not in hosts})
            reached |= {host.name for host in launch.hosts}
            ranks.append(job.rank)
            notes += job.notes
            different |= dict.fromkeys(unlike)
        else:
            notes.append(f"not carried over: {launch.where}a second job, `{launch.told}` (import it by itself)")
    if different:
        notes.append(
            to_check(f"{', '.join(different)}: not the same on all nodes; what the first has is taken for all")
        )
    return _complete(first, hosts, reached, notes)


def _complete(first: Found, hosts: dict[str, HostLine], reached: set[str], notes: list[str]) -> Found:
    """Return the job with the hosts of all its nodes, of which commands on hosts `reached` start some."""
    nodes = first.fields.get("nodes")
    least, most = map(int, nodes) if isinstance(nodes, tuple) else (1, 1)
    if others := _other_names(hosts, reached, most):
        notes.append(to_check(f"{', '.join(others)}: taken for another name of a host that is started"))
        hosts = {name: host for name, host in hosts.items() if name not in others}
    if first.rank:  # the first node is where the others meet it
        hosts = dict(sorted(hosts.items(), key=lambda item: item[0] in reached))
    named = tuple(hosts.values())
    room = _room(hosts)
    if room > most and first.remarks.get("nodes") == NODES_TAKEN:
        least = most = room  # a command for each host
        first = replace(first, fields={**first.fields, "nodes": (most, most)})
    if room > most:
        notes.append(f"check: {room} hosts are named, and the command says {counted(most, 'node')}")
    return replace(first, hosts=named, missing=missing_hosts((least, most), named), notes=tuple(dict.fromkeys(notes)))


def _by_rank(jobs: Sequence[Job]) -> list[Job]:
    """Return the nodes of the first job in order of their ranks, where all are known: the first host is that of rank 0."""
    alike = [one for one in jobs if _is_node_of(one[1], jobs[0][1])]
    ranks = [job.rank for _, job in alike if job.rank is not None]
    if len(ranks) == len(alike):
        alike.sort(key=lambda one: one[1].rank or 0)
    return [*alike, *(one for one in jobs if one not in alike)]


def _is_node_of(job: Found, first: Found) -> bool:
    """Say whether a command may start a further node of the `first` one's job."""
    return all(job.fields.get(key) == first.fields.get(key) for key in _IDENTITY) and _program(job) == _program(first)


def _program(job: Found) -> object:
    command = job.fields.get("command")
    return command[0] if isinstance(command, tuple) else None


def _is_new(one: Job, reached: set[str], ranks: Sequence[int | None], first: Found) -> bool:
    """Say whether a command starts a node that no other starts, and the `first` one's job has room for."""
    launch, job = one
    nodes = first.fields.get("nodes")
    room = nodes[1] if isinstance(nodes, tuple) and first.remarks.get("nodes") != NODES_TAKEN else len(ranks) + 1
    elsewhere = any(host.name not in reached for host in launch.hosts)
    return len(ranks) < room and (job.rank not in ranks if job.rank is not None else elsewhere)


def _differences(fields: Mapping[str, Value], first: Mapping[str, Value], outer: str = "") -> list[str]:
    """Return the keys in which two nodes are not alike, beside the name that a container has."""
    found: list[str] = []
    for key in {**first, **fields}:
        one, other = fields.get(key), first.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping) and not outer:
            found += _differences(one, other, f"{key}.")
        elif one != other and (outer or key != "name"):
            found.append(f"{outer}{key}")
    return found


def _room(hosts: Mapping[str, HostLine]) -> int:
    return sum(host.nodes for host in hosts.values() if host.takes_nodes)


def _other_names(hosts: Mapping[str, HostLine], reached: set[str], most: int) -> list[str]:
    """Return the hosts that are named beside those on which every node is started: by which the others meet one of them."""
    if any(host.roles for host in hosts.values()):
        return []
    started = {name: host for name, host in hosts.items() if name in reached}
    return [name for name in hosts if name not in reached] if started and _room(started) == most else []
