"""How jobs are found, for each kind of place. Only what is needed is imported: a job on hosts does not pay for Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.resolve.job import AS_STARTED
from jobctl.jobspec.operations.targets.choose import target_of
from jobctl.jobspec.spec.targets import PlaceKind, traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.targets.base import JobFinder


def _on_hosts() -> JobFinder:
    from jobctl.jobspec.operations.targets.hosts import OnHosts

    return OnHosts()


def _in_cluster() -> JobFinder:
    from jobctl.jobspec.operations.targets.cluster import InCluster

    return InCluster()


def _in_allocation() -> JobFinder:
    from jobctl.jobspec.operations.targets.allocation import InAllocation

    return InAllocation()


FINDERS: Mapping[PlaceKind, Callable[[], JobFinder]] = {
    "machine": _on_hosts,
    "hosts": _on_hosts,
    "cluster": _in_cluster,
    "allocation": _in_allocation,
}


def finder_of(target: str) -> JobFinder:
    """Return how jobs of a target are found."""
    return FINDERS[traits_of(target).place]()


def known_handle(directory: JobDir, reached: Reached = AS_STARTED) -> Handle:
    """Return what a job is looked at through: where it was started, or where `reached` says."""
    return finder_of(target_of(directory, reached)).known(directory, reached)


def found_in_spec(spec: Path, directory: JobDir, reached: Reached) -> tuple[PlaceKind, Handle] | None:
    """Return a job of which there is no trace here, and its place, if its spec alone says where it is."""
    for place, finder in FINDERS.items():
        found = finder().in_spec(spec, directory, reached)
        if found is not None:
            return place, found
    return None
