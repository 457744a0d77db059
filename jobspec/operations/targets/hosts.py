"""Jobs on hosts, and on this machine: how they are found, planned and checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.operations.errors import CommandNotRun, Refused
from jobctl.jobspec.operations.resolve.devices import devices_of, devices_to_check
from jobctl.jobspec.operations.resolve.job import Reached, Where, job_of_name, known_hosts
from jobctl.jobspec.operations.resolve.names import node_number
from jobctl.jobspec.operations.resolve.planning import (
    deployer_of,
    inventory_for,
    met_hosts,
    plan_in_place,
    plan_of,
    ssh_options,
)
from jobctl.jobspec.operations.targets.choose import NO_JOB, target_of
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.operations.targets.base import CheckRequest, RunRequest
    from jobctl.jobspec.plan.types import Plan


class OnHosts:
    """The jobs that jobctl itself recovers."""

    def known(self, directory: JobDir, reached: Reached) -> Deployer:
        """Return what a job is driven through: on the hosts where it was started, or on those of `reached`."""
        return deployer_of(directory, target_of(directory, reached), _reach(directory, reached))

    def homes(self, directory: JobDir) -> list[str]:
        """Return the hosts of its nodes, services and spares."""
        plan, inventory = directory.plan(), directory.inventory()
        if plan is None:
            return []
        spares = [host.name for host in inventory.hosts if host.spare] if inventory is not None else []
        services = [service.host.name for service in plan.services]
        return sorted({*(node.host.name for node in plan.nodes), *services, *spares})

    def in_spec(self, spec: Path, directory: JobDir, reached: Reached) -> None:
        """Return None: no spec says which hosts run its job."""

    def planned(self, compiled: Compiled, reached: Reached) -> tuple[Plan, Deployer]:
        """Return the plan of a compiled job whose nodes stay on their hosts, and its deployer."""
        return plan_in_place(compiled, reached)

    def check(self, request: CheckRequest) -> tuple[Sequence[Finding], tuple[str, ...]]:
        """Return whether hosts are fit, and their names."""
        deployer, plan = _checked(request)
        hosts = deployer.places()
        return deployer.preflight(plan, hosts, deep=request.deep, fitness=request.fitness), hosts

    def run(self, request: RunRequest, reporter: Reporter) -> int:
        """Run a command on the node's host, or on this machine."""
        from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
        from jobctl.jobspec.deploy.model.errors import CannotRun
        from jobctl.jobspec.operations.lifecycle.records import refuse_missing_data, secrets_of
        from jobctl.jobspec.operations.resolve.build import have_built
        from jobctl.jobspec.operations.resolve.channels import environ_of_job
        from jobctl.jobspec.operations.resolve.data import data_versions

        compiled, directory = request.compiled, job_of_name(request.compiled.spec.name)
        old = directory.plan()
        deployer = deployer_of(directory, compiled.target, inventory_for(compiled, request.reached), old)
        devices, versions = devices_of(compiled, deployer, old), data_versions(compiled, deployer, old)
        plan = deployer.plan = plan_of(compiled, devices=devices, versions=versions)
        refuse_missing_data(plan)
        node = plan.nodes[node_number(plan, request.node or "0", range(len(plan.nodes)))]
        have_built(deployer, plan, reporter)
        inputs = RuntimeInputs(environ_of_job(compiled, os.environ), secrets_of(compiled))
        try:
            return deployer.run_oneoff(plan, node, inputs, request.argv)
        except CannotRun as error:
            raise CommandNotRun(error.message, error.exit_code, error.hint) from error


def _checked(request: CheckRequest) -> tuple[Deployer, Plan | None]:
    """Return the hosts that are checked, for a job or for none."""
    compiled, where, reached = request.compiled, request.where, request.reached
    if compiled is None:
        if where.hosts is None:
            raise Refused("`check` looks at hosts", "name them: `--hosts hosts.txt`")
        reach = Inventory(known_hosts(where), ssh_options(reached.ssh_config, reached.accept_new, None))
        return deployer_of(job_of_name("check"), NO_JOB, reach), None
    directory = job_of_name(compiled.spec.name)
    old, ssh = directory.plan(), ssh_options(reached.ssh_config, reached.accept_new, directory.inventory())
    there = None if traits_of(compiled.target).is_here else Inventory(compiled.hosts, ssh)
    deployer = deployer_of(directory, compiled.target, there, old)
    plan = deployer.plan = plan_of(compiled, devices=devices_to_check(compiled, deployer, old))
    return deployer, plan


def _reach(directory: JobDir, reached: Reached) -> Inventory | None:
    """Return how the hosts of a job are reached: as it was started, or as `reached` says; it is where it was started."""
    known = directory.inventory()
    hosts, left = (known.hosts, known.left) if known else ((), ())
    if reached.hosts is not None:
        hosts, left = known_hosts(Where(hosts=reached.hosts)), ()
    if not hosts:
        return None
    options = ssh_options(reached.ssh_config, reached.accept_new, known)
    return Inventory(hosts, options, left).where_job_is(met_hosts(directory))
