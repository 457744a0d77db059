"""Launchers that wait on spare hosts until an order has a node there."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from jobctl.jobspec.deploy.host.host_job import SPARE_REPORT, HostJob
from jobctl.jobspec.deploy.model.control import Control, ledger_json
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.spare_state import SPARE, idle_spare, spare_container
from jobctl.jobspec.deploy.targets import provision
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import HotSpare
from jobctl.jobspec.plan.types import Node
from jobctl.jobspec.render.payload import handed_over

LAUNCHER_TIMEOUT = 10.0  # seconds that a job waits for the launcher of a spare: it can do without
POLL_INTERVAL = 0.2  # seconds between two looks at it


def idle_spares(fleet: HostFleet, artefacts: Mapping[str, ArtefactId], homes: Collection[str]) -> tuple[HotSpare, ...]:
    """Return the launchers that wait for a node, as last observed; none on `homes`, or of other `artefacts` by host."""
    found = []
    for host in fleet.inventory.hosts:
        seen = fleet.seen.get(host.name)
        if seen is None or host.name in homes or host.name not in artefacts:
            continue
        spare = idle_spare(host.name, seen.containers, seen.spare)
        fits = spare.artefact is not None and spare.artefact.stands_for(artefacts[host.name])
        if spare.port is not None and fits:
            found.append(HotSpare(host.name, host.address, spare.port))
    return tuple(found)


def ports(fleet: HostFleet, nodes: Iterable[Node]) -> dict[int, int]:
    """Return where nodes hear others that launchers of spares are about to become."""
    seen = {node.index: fleet.seen[node.host.name] for node in nodes if node.host.name in fleet.seen}
    spares = {index: idle_spare("", one.containers, one.spare) for index, one in seen.items()}
    return {index: spare.port for index, spare in spares.items() if spare.port is not None}


def start(host_job: HostJob, control: Control, image: str | None) -> None:
    """Start the launcher of a spare, and wait until it is ready to become a node. Raises HostError."""
    generation = control.generation
    if generation is not None and generation.command == "run":  # so that it knows what others may have begun since
        host_job.hand_over(ledger_json(control.ledger), handed_over(generation))
    # What it has said before is not how it will be: another port, and no node.
    if not any(one.role == SPARE and one.running for one in host_job.containers.seen()):
        host_job.remove([str(host_job.work / SPARE_REPORT)])
    host_job.start_spare(image)
    deadline = time.monotonic() + LAUNCHER_TIMEOUT
    while not (seen := host_job.observe()).waits:
        container = spare_container(seen.containers)
        if container is not None and (not container.running or container.restarting):
            code, text = host_job.containers.last_words(container)
            host_job.containers.kill([container])  # else its engine tries for ever
            words = f": {text.splitlines()[-1]}" if text else ""
            message = f"the container of the spare ended with code {code} before its launcher began{words}"
            raise HostError(host_job.host.name, "container-died", message)
        if time.monotonic() > deadline:
            raise HostError(host_job.host.name, "launcher-silent", "the launcher of the spare says nothing")
        time.sleep(POLL_INTERVAL)


def make_room(fleet: HostFleet, host_job: HostJob, *, sends: bool) -> None:
    """Let a node have a container of its own on a host: that of a spare is removed, so that no two act for one node.

    With `sends` the node's artefact is put there first: one that a spare has become was never sent it.
    """
    name, plan = host_job.host.name, fleet.plan
    hot = plan is not None and any(spare.host.name == name for spare in plan.spares)
    seen = fleet.seen.get(name)
    if (hot and seen is None) or (seen is not None and any(one.role == SPARE for one in seen.containers)):
        host_job.end_spare()
    if hot and sends and plan is not None:
        for error in provision.provision(fleet, plan, [name]).values():
            raise error


def end_all(fleet: HostFleet) -> None:
    """End the launchers that were last observed, idle ones too; their containers stay."""
    seen = fleet.seen

    def end(host_job: HostJob) -> None:
        containers = seen[host_job.host.name].containers
        host_job.containers.kill(containers)
        # An idle launcher ends at once: its engine may be about to start it again, which only a stop prevents.
        host_job.containers.stop([one for one in containers if one.role == SPARE], 0.0)

    fleet.on_each(seen, end)
