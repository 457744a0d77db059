"""Which version of their data hosts have, where a job's data is on hosts: they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import HostsFailed
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobctl.jobspec.deploy.apply.deployer import Deployer
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan


def data_versions(compiled: Compiled, deployer: Deployer, old: Plan | None) -> Mapping[str, str | None]:
    """Return the version of each data that is on a host, by its name.

    Where a host does not answer, it is the version that the job was started with: other hosts have that. Raises HostsFailed
    if no version is known.
    """
    from jobctl.jobspec.planner.code import data_of

    if not traits_of(compiled.target).takes_hosts:
        return {}
    there = [one for one in data_of(compiled.spec, str(compiled.directory)) if one.host is not None]
    found, failures = deployer.data_versions(there) if there else ({}, {})
    known = {**versions_in(old), **found}
    missing = [one.place for one in there if known.get(one.name) is None and one.name not in found]
    if missing:
        message = f"cannot look at data {', '.join(missing)}: nothing was changed"
        raise HostsFailed(message, "`HOST` in `data` is a name that `ssh HOST` knows", failures=failures)
    return known


def versions_in(plan: Plan | None) -> dict[str, str | None]:
    """Return the version of each data of a plan, by its name."""
    return {one.name: one.version for one in plan.data} if plan else {}
