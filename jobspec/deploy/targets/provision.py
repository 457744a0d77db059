"""What a plan needs on its hosts before anything is started there: artefacts, code, secrets, images and directories."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from hashlib import sha256
from typing import TypeVar

from jobctl.jobspec.deploy.apply.deployer import Failures, RuntimeInputs
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.webhooks import leave_webhooks
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.images.copy import ImageSources
from jobctl.jobspec.deploy.images.spread import ImageSpread
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.errors import DeployError, HostError, NotPrepared
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.spare_state import SPARE
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.sending.code_spread import spread_code
from jobctl.jobspec.deploy.sending.data_spread import DataSpread
from jobctl.jobspec.deploy.sending.send_code import CodeThere, Package, pack_code
from jobctl.jobspec.deploy.sending.send_data import pack_data
from jobctl.jobspec.deploy.store.webhooks import webhooks_for_hosts
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet
from jobctl.jobspec.deploy.transport.base import checked
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.plan.types import Container, Plan
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.artefact import COMPOSE_FILE, Artefact, folder, render
from jobctl.jobspec.render.container import code_directory, data_directory

T = TypeVar("T")


def spares(fleet: HostFleet, plan: Plan) -> dict[str, str]:
    """Return for each spare host what identifies all that a node needs there: code, image and the names of secrets."""
    homes = {node.host.name for node in plan.nodes}
    node = plan.nodes[0]
    needed: list[object] = [plan.code.version if plan.code else None, node.container.image, sorted(node.launch.secrets)]
    needed += [[one.name, one.version] for one in plan.data]
    version = sha256(json.dumps(needed).encode()).hexdigest()[:16]
    return {host.name: version for host in fleet.inventory.hosts if host.spare and host.name not in homes}


def idle_hosts(fleet: HostFleet, plan: Plan) -> frozenset[str]:
    """Return the hosts beside spares that a node may move to: they take part in the job, and have no node.

    A node has left them for a spare, or they run a member of etcd only.
    """
    shared = plan.checkpoint is None or plan.checkpoint.shared
    if plan.recovery.on_host_loss != "replace" or not shared:
        return frozenset()
    homes = {node.host.name for node in plan.nodes}
    there = {name for name, seen in fleet.seen.items() if seen.there}
    there |= {service.host.name for service in plan.services}
    idle = (host for host in fleet.inventory.hosts if host.trains and not host.spare and host.name in there - homes)
    return frozenset(host.name for host in idle if host.name not in fleet.inventory.left)


def free_hosts(fleet: HostFleet, observed: Observed) -> tuple[str, ...]:
    """Return the hosts with room for a node that has to move: those where a launcher waits, then other spares.

    A host with room for two is there twice.
    """
    at = homes_of(fleet.plan)
    at |= observed.control.placement
    taken = Counter(at.values())
    trains = [host for host in fleet.inventory.hosts if host.trains and host.name not in fleet.inventory.left]
    ready = [host for host in trains if (seen := fleet.seen.get(host.name)) is not None and seen.there]
    return tuple(
        host.name
        for host in sorted(ready, key=lambda host: (not fleet.seen[host.name].waits, not host.spare))
        for _ in range(host.nodes - taken[host.name])
    )


def artefacts(fleet: HostFleet, plan: Plan) -> dict[str, list[Artefact]]:
    """Return the files of each host: its own folder of what `render` prints, and the launcher; for spares only that.

    Where Compose runs as root (`docker=sudo`), everybody may read its file: on network file systems, root often has no more
    rights than any stranger (`root_squash`).
    """
    spare = [host.name for host in fleet.inventory.hosts if host.spare] + [node.host.name for node in plan.spares]
    homes = [node.host.name for node in plan.nodes] + [service.host.name for service in plan.services]
    found: dict[str, list[Artefact]] = {name: [] for name in (*homes, *spare, *sorted(idle_hosts(fleet, plan)))}
    folders = {folder(host): host for host in found}
    by_root = {host.name for host in fleet.inventory.hosts if host.docker == "sudo"}
    for artefact in render(plan, first_generation(plan)):
        where, slash, path = artefact.path.partition("/")
        if slash:
            host = folders[where]
            mode = artefact.mode | 0o044 if path == COMPOSE_FILE and host in by_root else artefact.mode
            found[host].append(replace(artefact, path=path, mode=mode))
        elif artefact.path == "launcher.py":
            for files in found.values():
                files.append(artefact)
    return found


@dataclass(frozen=True)
class Transfer:
    """What hosts of a plan get and may already have: code, data and images."""

    plan: Plan
    code: Package | None
    data: tuple[DataSpread, ...]
    images: ImageSources
    code_there: dict[str, CodeThere] = field(default_factory=dict)  # on hosts that were asked for it
    found: dict[tuple[str, str], Image] = field(default_factory=dict)  # images that were there, by host and name

    def spread(self, fleet: HostFleet, nodes: Iterable[str], services: Iterable[str]) -> Mapping[str, HostError]:
        """Let hosts hand images, much code and much data on to each other, before what is left comes to each by itself.

        Return the hosts that have stopped to answer meanwhile, and those that have no room.
        """
        answer = sorted(set(nodes) - set(fleet.down))
        if self.code is not None:
            others = [job for name, job in fleet.host_jobs.items() if name not in fleet.down]
            self.code_there.update(spread_code(self.code, [fleet.host_jobs[name] for name in answer], others))
        gone: dict[str, HostError] = {}
        for data in self.data:
            data.spread(name for name in answer if name not in gone)
            gone |= data.gone
        container = self.plan.nodes[0].container
        needed = {(container.image, container.pull): set(nodes)}
        for service in self.plan.services:
            if service.host.name in services:
                needed.setdefault((service.container.image, service.container.pull), set()).add(service.host.name)
        spread = ImageSpread(fleet.host_jobs.values(), self.images, container.python, keeps=True)
        for (image, pull), hosts in needed.items():
            spread.bring(image, sorted(hosts - set(fleet.down) - set(gone) - set(spread.gone)), pull)
        self.found.update(spread.found)
        return gone | spread.gone

    def to_node(self, host_job: HostJob) -> Image:
        """Bring a host what its nodes need; return what their image means there."""
        if self.code is not None:
            self._send_code(host_job, self.code)
        for data in self.data:
            data.send(host_job)
        return self._ensure(host_job, self.plan.nodes[0].container)

    def _send_code(self, host_job: HostJob, code: Package) -> None:
        """Send the code; an output file that only containers can read is made readable if it has to be."""
        try:
            code.send(host_job, self.code_there.get(host_job.host.name))
        except HostError as error:
            if error.code != "results-not-read":
                raise
            if not host_job.make_results_readable(self.plan.nodes[0].container):
                raise
            code.send(host_job)

    def to_services(self, host_job: HostJob) -> None:
        """Bring a host the images of its services."""
        for service in self.plan.services:
            if service.host.name == host_job.host.name:
                self._ensure(host_job, service.container)

    def _ensure(self, host_job: HostJob, container: Container) -> Image:
        """Have an image on a host."""
        return images.ensure(host_job, container, self.images, self.found.get((host_job.host.name, container.image)))


def transfer_of(fleet: HostFleet, plan: Plan) -> Transfer:
    """Return what hosts of a plan get, from hosts that answer or this machine."""
    sources = ImageSources(job for name, job in fleet.host_jobs.items() if name not in fleet.down)
    data = tuple(DataSpread(package, fleet.host_jobs) for package in pack_data(plan.data, fleet.folder_of))
    return Transfer(plan, pack_code(plan), data, sources)


def data_versions(fleet: HostFleet, data: Iterable[Dataset]) -> tuple[dict[str, str | None], Failures]:
    """Return the version of each data that is on a host, by its name, and which hosts could not be asked."""
    there = [one for one in data if one.host is not None]
    outcome = fan_out(there, lambda one: fleet.folder_of(one).version)
    versions = {one.name: version for one, version in outcome.done.items()}
    return versions, {str(one.host): error for one, error in outcome.failed.items()}


@dataclass(frozen=True)
class Delivery:
    """What a plan's hosts get: `files`, what is transferred, and `secrets`, beside those that run until a change is made.

    `webhooks` are those by which launchers tell, None if there are none.
    """

    plan: Plan
    files: Mapping[str, list[Artefact]]
    transfer: Transfer
    secrets: Mapping[str, str]
    webhooks: Json | None
    changing: bool
    spares: Mapping[str, str]
    idle: frozenset[str]

    @property
    def trains(self) -> set[str]:
        """The hosts where nodes train, or may do so later."""
        return {node.host.name for node in self.plan.nodes} | set(self.spares)

    def send(self, host_job: HostJob) -> Image | None:
        """Put on a host what it needs; return what the image means there, None where no node trains."""
        name, trains = host_job.host.name, self.trains
        serves = {service.host.name for service in self.plan.services}
        if name in trains or name in serves:
            self._serve(host_job)
        if name in trains:
            return self._equip(host_job)
        if name in self.idle:  # what it cannot take is no error: it is needed only if a node moves there
            with contextlib.suppress(HostError):
                self._serve(host_job)
                self._equip(host_job)
        return None

    def _serve(self, host_job: HostJob) -> None:
        """Put artefacts on a host, and the images of its services."""
        secrets = bool(self.secrets) or self.webhooks is not None or self.changing
        host_job.send(self.files[host_job.host.name], _directories(self.plan, host_job), secrets=secrets)
        self.transfer.to_services(host_job)

    def _equip(self, host_job: HostJob) -> Image:
        """Put on a host what a node needs beside its artefact."""
        plan = self.plan
        host_job.send_secrets({**(host_job.secrets() or {}), **self.secrets} if self.changing else self.secrets)
        if self.webhooks is not None:
            leave_webhooks(host_job, self.webhooks)
        if plan.checkpoint:
            make_directory(host_job, plan.checkpoint.dir)
        image = self.transfer.to_node(host_job)
        host_job.give(plan.nodes[0].container)
        if host_job.host.name in self.spares:
            host_job.note_prepared(self.spares[host_job.host.name])
        return image


def prepare(fleet: HostFleet, plan: Plan, start: RuntimeInputs) -> tuple[Image | None, Failures]:
    """Put all that `plan` needs on its hosts; return what its image means there, and which hosts failed."""
    names = sorted({name for node in plan.nodes for name in node.launch.secrets})
    missing = [name for name in names if name not in start.secrets]
    if missing:
        raise DeployError(f"no value of secret {', '.join(missing)} is known", "`jobctl up` reads secrets")
    delivery = Delivery(
        plan,
        artefacts(fleet, plan),
        transfer_of(fleet, plan),
        {name: start.secrets[name] for name in names},
        webhooks_for_hosts(fleet.job, plan),
        fleet.job.is_changing(),
        spares(fleet, plan),
        idle_hosts(fleet, plan),
    )
    there = set(delivery.files) - set(fleet.down)
    gone = delivery.transfer.spread(fleet, delivery.trains & there, there)
    outcome = fleet.on_each(there, _unless_gone(gone, delivery.send))
    image = images.common_image(image for image in outcome.done.values() if image is not None)
    return image, fleet.failures(outcome)


def stage(fleet: HostFleet, plan: Plan, hosts: Iterable[str]) -> Failures:
    """Bring code, data and images to `hosts`, those of nodes and services and the spares; what runs there goes on untouched."""
    transfer = transfer_of(fleet, plan)
    trains, asked = {node.host.name for node in plan.nodes} | set(spares(fleet, plan)), list(hosts)
    gone = transfer.spread(fleet, trains.intersection(asked), asked)

    def send(host_job: HostJob) -> None:
        transfer.to_services(host_job)
        if host_job.host.name in trains:
            transfer.to_node(host_job)

    return fleet.failures(fleet.on_each(asked, _unless_gone(gone, send)))


def _unless_gone(gone: Mapping[str, HostError], send: Callable[[HostJob], T]) -> Callable[[HostJob], T]:
    """Return `send` for hosts that still answer; for others it raises why they are left out."""

    def task(host_job: HostJob) -> T:
        if host_job.host.name in gone:
            raise gone[host_job.host.name]
        return send(host_job)

    return task


_UNSENT = ": the host did not answer when `up` sent it, or somebody has removed it"


def provision(fleet: HostFleet, plan: Plan, hosts: Iterable[str]) -> Failures:
    """Put on `hosts` what nodes that move there need: what `prepare` left on spares, and their artefacts."""
    files, webhooks = artefacts(fleet, plan), webhooks_for_hosts(fleet.job, plan)

    def send(host_job: HostJob) -> None:
        host_job.send(files[host_job.host.name], _directories(plan, host_job), secrets=True)
        if plan.code and not host_job.has(code_directory(plan.code)):
            raise NotPrepared(host_job.host.name, f"the code that runs is not there{_UNSENT}")
        for data in plan.data:
            if not host_job.has(data_directory(data)):
                raise NotPrepared(host_job.host.name, f"the data `{data.name}` is not there{_UNSENT}")
        if any(node.launch.secrets for node in plan.nodes) and host_job.secrets() is None:
            raise NotPrepared(host_job.host.name, f"the job's secrets are not there{_UNSENT}")
        if webhooks is not None:
            leave_webhooks(host_job, webhooks)
        if plan.checkpoint:
            make_directory(host_job, plan.checkpoint.dir)
        host_job.give(plan.nodes[0].container)

    return fleet.failures(fleet.on_each(hosts, send))


def leave_secrets(fleet: HostFleet, plan: Plan | None, secrets: Mapping[str, str] | None) -> None:
    """Leave these secrets on the hosts of a job (None: those that are there), and the webhooks of now."""
    webhooks = webhooks_for_hosts(fleet.job, plan) if plan is not None else None

    def leave(host_job: HostJob) -> None:
        if secrets is not None:
            host_job.leave_secrets(secrets)
        leave_webhooks(host_job, webhooks)
        if plan is not None:
            host_job.give(plan.nodes[0].container)

    fleet.on_each([host for host, seen in fleet.seen.items() if host not in fleet.down and seen.there], leave)


def known_secrets(fleet: HostFleet) -> RuntimeInputs | None:
    """Return the secrets that hosts of the job have; they are the same on all."""
    for host_job in fleet.host_jobs.values():
        try:
            found = host_job.secrets() if host_job.host.name in fleet.seen else None
        except HostError:
            continue
        if found is not None:
            return RuntimeInputs({}, found)
    return None


def make_directory(host_job: HostJob, path: str) -> None:
    """Make a directory on a host."""
    checked(host_job.transport, ["mkdir", "-p", "--", path], f"make {path}")


def _directories(plan: Plan, host_job: HostJob) -> list[str]:
    """Return the directories that a host needs for its nodes and services of the job."""
    nodes = [f"node-{node.index}" for node in plan.nodes if node.host.name == host_job.host.name]
    services = [service.name for service in plan.services if service.host.name == host_job.host.name]
    if any(spare.host.name == host_job.host.name for spare in plan.spares):
        # Made in advance, as the user who answers launchers there, and not as that of the container.
        nodes = [SPARE, *(f"node-{node.index}" for node in plan.nodes)]
    return ["run/feeds", *nodes, *services, *(f"outputs/{path}" for path in (plan.code.outputs if plan.code else ()))]
