"""How the cluster of a job is reached: kept with the job, so that later commands need only its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.kinds import Kind, known_kind
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Context and namespace of a job, and the kinds that it consists of.

    `name` is the cluster's, also where there is no context, in a pod; None if an older version has kept this there.
    """

    context: str | None = None
    namespace: str | None = None
    kinds: tuple[Kind, ...] = ()
    name: str | None = None

    @property
    def place(self) -> str | None:
        """The cluster and the namespace, as `place_name` has them; None if they are not known."""
        return place_name(self.name, self.namespace) if self.name and self.namespace else None

    def is_of(self, api: Api) -> bool:
        """Say whether `api` reaches that cluster, and is used in that namespace."""
        return (self.context, self.namespace) == (api.context, api.namespace)


def place_name(cluster: str, namespace: str) -> str:
    """Return how a namespace of a cluster is called where hosts have their names."""
    return f"{cluster}/{namespace}"


def dump_access(api: Api, kinds: Sequence[Kind]) -> dict[str, Any]:
    """Return how a job's cluster is reached, as plain data."""
    told = [[kind.group, kind.version, kind.kind, kind.plural] for kind in kinds]
    return {"name": api.name, "context": api.context, "namespace": api.namespace, "kinds": told}


def load_access(data: Mapping[str, Any]) -> ClusterAccess:
    """Return what `dump_access` wrote."""
    kinds = [
        known_kind(f"{g}/{v}" if g else v, kind) or Kind(g, v, kind, plural) for g, v, kind, plural in data["kinds"]
    ]
    return ClusterAccess(data["context"], data["namespace"], tuple(kinds), data.get("name") or data["context"])
