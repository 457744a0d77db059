"""Whether hosts, or a cluster, are fit: for a job, or for any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.unfit import failures_of
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve.job import (
    DEFAULT_SPEC,
    Compiled,
    Reached,
    Where,
    as_started,
    check,
    choose_target,
    compiled_of,
    job_of_name,
    known_hosts,
)
from jobctl.jobspec.operations.resolve.planning import deployer_of, plan_of, ssh_options
from jobctl.jobspec.spec.fitness_mode import FitnessMode

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures, Handle
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.plan.types import Plan


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found. `hosts` are all that were checked, of which a cluster counts as one."""

    findings: tuple[Finding, ...]
    hosts: tuple[str, ...]
    cluster: bool

    @property
    def unfit(self) -> Failures:
        """Why hosts are not fit, by their names."""
        return failures_of(self.findings)


def check_hosts(
    job: str | None,
    overrides: Sequence[str] | None,
    where: Where,
    reached: Reached,
    *,
    deep: bool = False,
    fitness: FitnessMode = "off",
) -> CheckResult:
    """Check all hosts: of a job, or of a hosts file alone; with `fitness` also how fast they are."""
    where = as_started(job, where)
    target = choose_target(where)
    cluster = target in ("kubernetes", "slurm")
    alone = job is None and not Path(DEFAULT_SPEC).exists()
    compiled = None if alone else compiled_of(check(job, overrides, where))
    if fitness != "off" and target not in ("compose", "ssh"):
        raise Refused(f"`--fitness` compares hosts, and target `{target}` has none", "name them: `--hosts hosts.txt`")
    if cluster:
        handle, plan = (_in_cluster if target == "kubernetes" else _in_slurm)(compiled, where, reached)
        return CheckResult(tuple(handle.preflight(plan, handle.where(), deep=deep)), handle.where(), cluster)
    deployer, plan = _on_hosts(compiled, where, reached)
    hosts = deployer.where()
    return CheckResult(tuple(deployer.preflight(plan, hosts, deep=deep, fitness=fitness)), hosts, cluster)


def _on_hosts(compiled: Compiled | None, where: Where, reached: Reached) -> tuple[Deployer, Plan | None]:
    """Return the hosts that are checked, for a job or for none."""
    from jobctl.jobspec.deploy.model.inventory import Inventory
    from jobctl.jobspec.operations.resolve.devices import devices_to_check

    if compiled is None:
        if where.hosts is None:
            raise Refused("`check` looks at hosts", "name them: `--hosts hosts.txt`")
        reach = Inventory(known_hosts(where), ssh_options(reached.ssh_config, reached.accept_new, None))
        return deployer_of(job_of_name("check"), "ssh", reach), None
    directory = job_of_name(compiled.spec.name)
    old, ssh = directory.plan(), ssh_options(reached.ssh_config, reached.accept_new, directory.inventory())
    there = Inventory(compiled.hosts, ssh) if compiled.target != "local" else None
    deployer = deployer_of(directory, compiled.target, there, old)
    plan = deployer.plan = plan_of(compiled, devices=devices_to_check(compiled, deployer, old))
    return deployer, plan


def _in_cluster(compiled: Compiled | None, where: Where, reached: Reached) -> tuple[Handle, Plan | None]:
    """Return the cluster that is checked, for a job or for none."""
    from jobctl.jobspec.operations.resolve.running import cluster_for, cluster_of

    if compiled is None:
        return cluster_of(job_of_name("check"), reached.context, reached.namespace), None
    plan, cluster = cluster_for(compiled, reached)
    return cluster, plan


def _in_slurm(compiled: Compiled | None, where: Where, reached: Reached) -> tuple[Handle, Plan | None]:
    """Return the Slurm that is checked, for a job."""
    from jobctl.jobspec.operations.resolve.running import allocation_for

    if compiled is None:
        raise Refused("`check --target slurm` looks at a job", "name its spec: `jobctl check job.yaml --target slurm`")
    plan, allocation = allocation_for(compiled, reached)
    return allocation, plan
