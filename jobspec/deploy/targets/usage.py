"""Asking what the processes of a job's nodes use: engines for containers, this machine's /proc for processes."""

from __future__ import annotations

from collections.abc import Mapping

from jobctl.jobspec.deploy.apply.deployer import Handle
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.usage import NodeUsage
from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.targets.local.deployer import Local
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.live_fanout import LiveFanOut


def usage_of(handle: Handle, observed: Observed, live: LiveFanOut | None = None) -> Mapping[int, NodeUsage]:
    """Return what running nodes use; nothing of those whose host does not tell, or is not jobctl's to ask, as in a cluster.

    With `live`, which is to be the same each time, a host that is silent delays no other.
    """
    if isinstance(handle, Local):
        running = [node.node for node in observed.nodes if node.alive]
        return {node: processes.usage(processes.marked(handle.work, node)) for node in running}
    if not isinstance(handle, Hosts):
        return {}
    homes: dict[str, dict[int, str]] = {}
    for node in observed.nodes:
        if node.container is not None and node.alive and node.reachable and node.host in handle.host_jobs:
            homes.setdefault(node.host, {})[node.node] = node.container

    def ask(host_job: HostJob) -> dict[int, NodeUsage]:
        containers = homes[host_job.host.name]
        return {node: host_job.containers.usage(container) for node, container in containers.items()}

    outcome = (live.on_each if live else fan_out)([handle.host_jobs[host] for host in homes], ask)
    return {node: used for found in outcome.done.values() for node, used in found.items()}
