"""Hosts that take the place of one that is lost: what is on them before they have a node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.untrusted import Json, as_number
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.records import dataclass

SPARE = "spare"  # the role of a container whose launcher waits to become a node
NONE: Json = {}


@dataclass(frozen=True, slots=True)
class SpareState:
    """A host (of an allocation: a machine) that has no node yet.

    `state`: a launcher waits there and is `ready`; it is, and its standby is `warming`; none waits: `cold`; or nobody
    knows: `unreachable`. `artefact` is what its container was started from, None where none runs; `port` is
    where its launcher hears others.
    """

    host: str
    state: str
    artefact: ArtefactId | None = None
    port: int | None = None

    @property
    def is_hot(self) -> bool:
        """Whether a launcher waits there that can become a node."""
        return self.state in ("ready", "warming") and self.port is not None


def as_nodes(
    containers: Iterable[SeenContainer], reports: Mapping[int, Json], spare: Json | None
) -> tuple[SeenContainer, ...]:
    """Return the containers of one host, those of spares as what they are now: the node that they have become, or none.

    `spare` is what the launcher there has reported before it became a node. What an earlier container of a spare has left
    in a node's folder says nothing of this one.
    """
    node = _became(reports, spare or NONE)
    return tuple(replace(one, node=node) if one.role == SPARE else one for one in containers)


def _became(reports: Mapping[int, Json], spare: Json) -> int:
    named, launcher = as_number(spare.get("node")), spare.get("launcher")
    if named is not None and named >= 0:
        return named
    # It writes two files: the node's may be there a moment before the other one says which node that is.
    same = (node for node, said in reports.items() if said.get("spare") is True and said.get("launcher") == launcher)
    return next(same, -1) if launcher else -1


def spare_container(containers: Sequence[SeenContainer]) -> SeenContainer | None:
    """Return the container of a spare that is on a host, one that runs if there is any."""
    found = [one for one in containers if one.role == SPARE]
    return max(found, key=lambda one: one.running, default=None)


def idle_spare(host: str, containers: Sequence[SeenContainer], spare: Json | None) -> SpareState:
    """Return how a host is that answers and has no node."""
    container, said = spare_container(containers), spare or NONE
    if container is None or not container.running or container.node >= 0:
        return SpareState(host, "cold")
    port = as_number(said.get("port"))
    waits = said.get("state") == "waiting" and port is not None and not container.paused
    standby = said.get("standby")
    warming = isinstance(standby, dict) and standby.get("state") == "warming"
    state = ("warming" if warming else "ready") if waits else "cold"
    return SpareState(host, state, container.artefact, port if waits else None)
