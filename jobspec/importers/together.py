"""One job of the commands that start its nodes, each on its host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobctl.jobspec.importers.common import missing_hosts
from jobctl.jobspec.importers.draft import Found, HostLine
from jobctl.jobspec.importers.launchers.options import NODES_TAKEN
from jobctl.jobspec.importers.notes import to_check
from jobctl.jobspec.importers.start_command import StartCommand
from jobctl.jobspec.launcher.telling.words import counted


def merged(jobs: Sequence[tuple[StartCommand, Found]]) -> Found:
    """Return the job that all launches are: one for each node is one job; others are noted."""
    (start, first), *rest = jobs
    hosts: dict[str, HostLine] = {host.name: host for host in first.hosts}
    reached = {host.name for host in start.hosts}
    notes = list(first.notes)
    for launch, job in rest:
        if job.fields == first.fields:
            hosts.update({host.name: host for host in job.hosts if host.name not in hosts})
            reached |= {host.name for host in launch.hosts}
            notes += job.notes
        else:
            notes.append(f"not carried over: {launch.where}a second job, `{launch.told}` (import it by itself)")
    nodes = first.fields.get("nodes")
    least, most = map(int, nodes) if isinstance(nodes, tuple) else (1, 1)
    if others := _other_names(hosts, reached, most):
        notes.append(to_check(f"{', '.join(others)}: taken for another name of a host that is started"))
        hosts = {name: host for name, host in hosts.items() if name not in others}
    named = tuple(hosts.values())
    room = _room(hosts)
    if room > most and first.remarks.get("nodes") == NODES_TAKEN:
        least = most = room  # a command for each host
        first = replace(first, fields={**first.fields, "nodes": (most, most)})
    if room > most:
        notes.append(f"check: {room} hosts are named, and the command says {counted(most, 'node')}")
    return replace(first, hosts=named, missing=missing_hosts((least, most), named), notes=tuple(dict.fromkeys(notes)))


def _room(hosts: Mapping[str, HostLine]) -> int:
    return sum(host.nodes for host in hosts.values() if host.takes_nodes)


def _other_names(hosts: Mapping[str, HostLine], reached: set[str], most: int) -> list[str]:
    """Return the hosts that are named beside those on which every node is started: by which the others meet one of them."""
    if any(host.roles for host in hosts.values()):
        return []
    started = {name: host for name, host in hosts.items() if name in reached}
    return [name for name in hosts if name not in reached] if started and _room(started) == most else []
