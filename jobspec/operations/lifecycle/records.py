"""The records of a job that `up` writes: for commands that name only the job, for its supervisor, and for its report."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve.drift import secret_digests
from jobctl.jobspec.operations.resolve.job import job_of_name
from jobctl.jobspec.operations.resolve.planning import context_of
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.apply.executor import Fresh
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.model.inventory import Inventory
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.lifecycle.base import UpOptions
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.generation import Generation
    from jobctl.jobspec.plan.types import Plan


def refuse_missing_data(plan: Plan) -> None:
    """Raise Refused if data that hosts are to get is not where the spec says."""
    for one in plan.data:
        if one.version is None and traits_of(plan.target).takes_hosts:
            hint = "see `data` in the spec: jobctl sends folders of this machine, and of hosts as `HOST:/path`"
            raise Refused(f"there is no directory {one.place} to send: nothing was changed", hint)


def tell_up(
    deployer: Handle,
    plan: Plan,
    *,
    fresh: bool = False,
    unfit: Failures | None = None,
    measured: Sequence[Finding] = (),
) -> None:
    """Record what is brought up, what was measured before, and which hosts are not fit: `report` tells it later."""
    from jobctl.jobspec.deploy.model.fitness_event import fitness_event
    from jobctl.jobspec.deploy.store import events

    message = f"up: {plan.framework} on {counted(len(plan.nodes), 'node')}, target {plan.target}"
    told = {"framework": plan.framework, "target": plan.target, "fresh": fresh}
    events.record(deployer.job.events, time.time(), "up", message, **told)
    image = plan.nodes[0].container.image if plan.nodes else None
    if (found := fitness_event(measured, plan.fitness, image)) is not None:
        events.record(deployer.job.events, time.time(), "fitness", found[0], **found[1])
    tell_refused(deployer.job, unfit or {})


def tell_refused(job: JobDir, failed: Failures) -> None:
    """Record which hosts cannot have a node, and why."""
    from jobctl.jobspec.deploy.store import events

    for host, error in failed.items():
        events.record(job.events, time.time(), "host-failed", error.message, host=host)


def record_of(
    compiled: Compiled, plan: Plan, reach: Inventory | None, cluster: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what is kept of how a job was started, for commands that name only the job."""
    from jobctl.jobspec.deploy.model.inventory import dump_inventory

    return {
        "job": plan.job,
        "target": plan.target,
        "spec": str(compiled.path.absolute()),
        "hosts": str(compiled.hosts_path.absolute()) if compiled.hosts_path else None,
        "on": compiled.on,
        "exclude": compiled.exclude,
        "set": list(compiled.overrides),
        "reach": dump_inventory(reach) if reach else None,
        "cluster": cluster,
        "owner": plan.owner,
        "started_at": time.time(),
    }


def asked(options: UpOptions, fresh: Fresh | None, last: Generation | None) -> dict[str, Any]:
    """Return what is kept of what `up` was asked besides, beside the generation that ran then."""
    from jobctl.jobspec.deploy.apply.asked import Asked, request_record

    return request_record(Asked(fresh, options.recreate), last)


def source_of(compiled: Compiled, plan: Plan, secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return the data from which the supervisor plans the job again when a node has to move; `about` has the hosts."""
    return {
        "spec": compiled.spec.model_dump(mode="json"),
        "context": asdict(context_of(compiled)),
        "count": len(plan.nodes) if plan.elastic else None,
        "secrets": secret_digests(compiled, job_of_name(plan.job), secrets),
    }


def secrets_of(compiled: Compiled) -> dict[str, str]:
    """Return the values of the job's secrets. Raises Refused for one that cannot be read."""
    from jobctl.jobspec.deploy.store.secrets import SecretMissing, read_secrets

    try:
        return read_secrets(compiled.spec.secrets, compiled.directory, os.environ)
    except SecretMissing as missing:
        raise Refused(str(missing), missing.hint) from missing


def secret_names(plan: Plan) -> set[str]:
    """Return the names of the secrets that a plan's processes get."""
    return {name for node in plan.nodes for name in node.launch.secrets}
