"""The hot spares of a job: spare hosts whose idle launcher becomes the node of a lost host. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import TRAINERS_ONLY
from jobctl.jobspec.plan import types
from jobctl.jobspec.plan.artefact_id import INPUTS_LABEL
from jobctl.jobspec.planner.context import PlanError, Request
from jobctl.jobspec.planner.inputs import inputs_label
from jobctl.jobspec.planner.placement import equipped, tasks_on_spares

if TYPE_CHECKING:
    from jobctl.jobspec.planner.nodes import NodeBuilder

MAX_NODES_WITH_SPARES = 256  # nodes of a job with hot spares: the launcher on a spare has a mount for each


def spares_of(request: Request, build: NodeBuilder, nodes: Sequence[types.Node]) -> tuple[types.Node, ...]:
    """Return a node without a number for each spare host on which a launcher can wait for the node of another host.

    Whether a node is there already makes no difference. A spare that would start another number of processes is left
    out: a launcher that takes a node over keeps its ranks. So is one whose devices nobody knows.
    """
    if not _may_be_hot(request, nodes):
        return ()
    found = []
    for task in tasks_on_spares(equipped(request.hosts, request.devices)):
        try:
            node = build.node(0, task)
        except PlanError:
            continue
        if all(node.launch.nproc == other.launch.nproc for other in nodes):
            found.append(_waiting(request, node, len(nodes)))
    return tuple(found)


def _may_be_hot(request: Request, nodes: Sequence[types.Node]) -> bool:
    """Say whether any node may begin at once wherever a launcher waits for it."""
    spec = request.spec
    on_hosts = request.context.traits.takes_hosts and spec.mode == "collective" and request.roles == TRAINERS_ONLY
    stays = spec.recovery.on_host_loss not in (None, "replace") or (spec.checkpoint and not spec.checkpoint.shared)
    together = all(not n.launch.regroups and n.launch.rejoin is None for n in nodes)
    homes = {node.host.name for node in nodes}
    alone = all(host.nodes == 1 for host in request.hosts if host.name in homes) and len(nodes) <= MAX_NODES_WITH_SPARES
    return on_hosts and not stays and spec.recovery.standby is not None and together and alone


def _waiting(request: Request, node: types.Node, nodes: int) -> types.Node:
    """Return the node that waits on a spare host: as node 0 would be there, with a name of its own."""
    job, host = request.spec.name, node.host.name
    inputs = inputs_label(dict(node.container.labels)[INPUTS_LABEL], "spare", nodes)
    own = {"jobctl.node": "spare", "jobctl.role": "spare", **dict([inputs])}
    labels = tuple((name, own.get(name, value)) for name, value in node.container.labels)
    # Programs tell machines apart by host names, and two nodes may be on spares.
    hostname = f"{job}-spare-{sha256(host.encode()).hexdigest()[:6]}"
    container = replace(node.container, name=f"jobctl-{job}-spare", hostname=hostname, labels=labels)
    return replace(node, index=-1, container=container, launch=replace(node.launch, node=-1, spare=nodes))
