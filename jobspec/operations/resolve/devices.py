"""How many devices hosts have, where neither the spec nor the hosts file says so: they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import HostsFailed
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan
    from jobctl.jobspec.spec.hosts import Host


def devices_of(compiled: Compiled, deployer: Deployer, old: Plan | None) -> Mapping[str, int] | None:
    """Return how many devices the job's hosts have, by their names; None where nobody has to know.

    The count of the first `up` holds until `down`: a job that runs is not dealt other devices because one of
    them is missing now. Raises HostsFailed if nothing is known of any host.
    """
    found, failed = _looked_at(compiled, deployer, old)
    if found is None or found or any(_says(host) for host in compiled.hosts):
        return found
    kind = compiled.spec.devices.kind
    remedy = f"`devices: {kind}:8` or `slots=8` in the hosts file says how many there are"
    if failed:
        silent = "no host answers that could be asked for its devices"
        raise HostsFailed(silent, remedy, kind="devices-unknown", failures=failed)
    hint = f"is the driver loaded there? {remedy}"
    raise HostsFailed(f"no host has a device of kind `{kind}`", hint, kind="devices-unknown")


def devices_to_check(compiled: Compiled, deployer: Deployer, old: Plan | None) -> Mapping[str, int] | None:
    """Return the same for `check`, which itself says what is wrong with hosts: one device for each node where none was found."""
    found, _ = _looked_at(compiled, deployer, old)
    if found is None or found or any(_says(host) for host in compiled.hosts):
        return found
    return {host.name: host.nodes for host in compiled.hosts}


def _looked_at(compiled: Compiled, deployer: Deployer, old: Plan | None) -> tuple[Mapping[str, int] | None, Failures]:
    """Return what is known of hosts, with a look at those that nothing is known of, and which did not answer."""
    wanted = compiled.spec.devices
    if not traits_of(compiled.target).takes_hosts or wanted.kind == "cpu":
        return None, {}
    if wanted.count is not None or wanted.ids is not None:
        return None, {}
    known = dict(old.counted) if old and _kind(old) == wanted.kind else {}
    names = {host.name for host in compiled.hosts if not _says(host) and host.trains}
    found, failed = deployer.count_devices(wanted.kind, names - set(known))
    counts = {**{name: known[name] for name in names & set(known)}, **found}
    return (counts if names else None), failed


def _says(host: Host) -> bool:
    """Say whether the hosts file tells which devices a host has."""
    return host.slots is not None or host.devices is not None


def _kind(plan: Plan) -> str:
    """Return the kind of a job's devices."""
    return next((node.container.devices.kind for node in plan.nodes if node.role == "trainer"), "cpu")
