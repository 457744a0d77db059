"""What `check` says of hosts: verdicts, and what was found out about a host that they rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.plan.types import Need, Node, Plan, Service
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.container import host_mounts

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.facts import Facts
    from jobctl.jobspec.deploy.host.host_job import HostJob
    from jobctl.jobspec.deploy.images.copy import ImageSources
    from jobctl.jobspec.deploy.model.engine_kind import EngineKind

Json = dict[str, Any]


@dataclass(eq=False)
class CheckedHost:
    """A host, what it is needed for, and what was found out about it so far."""

    host_job: HostJob
    nodes: tuple[Node, ...]
    services: tuple[Service, ...] = ()
    facts: Facts | None = None
    engine: EngineKind | None = None
    image: str | None = None
    image_sources: Sequence[str] = ()  # who has an image that is not here
    probe: Json | None = None
    busy: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """The host's name."""
        return self.host_job.host.name

    @property
    def driver_hangs(self) -> bool:
        """Whether `nvidia-smi` does not answer there. A container with GPUs would not either."""
        return self.facts is not None and "hangs" in self.facts.values

    @property
    def kind(self) -> str:
        """The kind of the devices that it is needed for."""
        return self.nodes[0].container.devices.kind if self.nodes else "cpu"


Found = Iterator[Finding]


@dataclass
class Survey:
    """One run of all checks: for which job (None: bare hosts), of which hosts, and what was found so far."""

    plan: Plan | None
    seats: Sequence[CheckedHost]
    deep: bool = False
    findings: list[Finding] = field(default_factory=list)
    images: ImageSources | None = None  # who has images that a host lacks

    @property
    def needs(self) -> tuple[Need, ...]:
        """What is looked for in the image."""
        return tuple(need for need in (self.plan.needs if self.plan else ()) if self.deep or not need.deep)

    def builds(self, image: str) -> bool:
        """Say whether `up` builds an image if nobody has it."""
        return self.plan is not None and self.plan.build is not None and self.plan.build.image == image

    def failed(self, seat: CheckedHost, *checks: str) -> bool:
        """Say whether one of these checks found an error on a host."""
        return any(f.host == seat.name and f.check in checks and f.verdict == "error" for f in self.findings)


def binds(plan: Plan | None, nodes: Iterable[Node]) -> list[Any]:
    """Return the bind mounts whose sources have to be there before: all except the checkpoint directory, which is made."""
    made = plan.checkpoint.dir if plan and plan.checkpoint else None
    return [m for n in nodes for m in host_mounts(n.container) if m.kind == "bind" and m.source != made]


def of_error(host: str, check: str, error: DeployError) -> Finding:
    """Return the finding for an error of a host, met while it was looked at for `check`."""
    if isinstance(error, HostError):
        return Finding(host, check, "error", error.cause, error.code, error.hint)
    return Finding(host, check, "error", error.message, "failed", error.hint)


def rendezvous_port_taken(host: str, port: int) -> Finding:
    """Return what there is to say of a port at which nodes are to meet, and another program listens."""
    text = f"port {port} of `rendezvous.port` is taken"
    hint = "choose another, or leave `rendezvous.port` out: a free one is found for each generation"
    return Finding(host, "ports", "error", text, "port-taken", hint)


def etcd_port_taken(host: str, port: int) -> Finding:
    """Return what there is to say of a port that a member of the managed etcd needs, and another program has."""
    text = f"port {port} of the managed etcd is taken"
    hint = "choose others: `etcd: {managed: {port: …}}`; members use that port and the next"
    return Finding(host, "ports", "error", text, "port-taken", hint)
