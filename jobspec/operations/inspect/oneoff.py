"""A command with what the job's processes would have, but without the job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import CommandNotRun, HostsFailed
from jobctl.jobspec.operations.lifecycle.records import refuse_missing_data, secrets_of
from jobctl.jobspec.operations.resolve.build import have_built
from jobctl.jobspec.operations.resolve.data import data_versions
from jobctl.jobspec.operations.resolve.devices import devices_of
from jobctl.jobspec.operations.resolve.job import job_of_name
from jobctl.jobspec.operations.resolve.names import node_number
from jobctl.jobspec.operations.resolve.planning import deployer_of, inventory_for, plan_of
from jobctl.jobspec.operations.unsupported import refuse_unsupported
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled, Reached


def run_like_node(
    compiled: Compiled, node: str | None, argv: Sequence[str], reached: Reached, reporter: Reporter
) -> int:
    """Run `argv` with what the job's processes would have, and return its exit code."""
    from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
    from jobctl.jobspec.deploy.model.errors import CannotRun

    refuse_unsupported(compiled.target, "run")
    if traits_of(compiled.target).in_allocation:
        return _run_in_slurm(compiled, node, argv, reached)
    directory = job_of_name(compiled.spec.name)
    old = directory.plan()
    deployer = deployer_of(directory, compiled.target, inventory_for(compiled, reached), old)
    devices, versions = devices_of(compiled, deployer, old), data_versions(compiled, deployer, old)
    plan = deployer.plan = plan_of(compiled, devices=devices, versions=versions)
    refuse_missing_data(plan)
    index = node_number(plan, node or "0", range(len(plan.nodes)))
    have_built(deployer, plan, reporter)
    try:
        return deployer.look_around(plan, plan.nodes[index], RuntimeInputs(os.environ, secrets_of(compiled)), argv)
    except CannotRun as error:
        raise CommandNotRun(error.message, error.code, error.hint) from error


def _run_in_slurm(compiled: Compiled, node: str | None, argv: Sequence[str], reached: Reached) -> int:
    """Run `argv` on a machine of the job's allocation, or on one that Slurm is asked for. Raises HostsFailed."""
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
    from jobctl.jobspec.operations.targets.allocation import InAllocation

    plan, allocation = InAllocation().planned(compiled, reached, None)
    index = node_number(plan, node or "0", range(len(plan.nodes)))
    try:
        return allocation.look_around(index, secrets_of(compiled), argv)
    except AllUnreachable as nothing:
        error = nothing.failures[allocation.login.name]
        raise HostsFailed(error.message, error.hint) from nothing
