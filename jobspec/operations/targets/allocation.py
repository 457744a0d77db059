"""Jobs in Slurm: how they are found, planned and checked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.operations.errors import HostsFailed, Refused
from jobctl.jobspec.operations.resolve.job import job_of_name
from jobctl.jobspec.operations.resolve.names import node_number
from jobctl.jobspec.operations.resolve.planning import plan_of, ssh_options
from jobctl.jobspec.spec.hosts import Host

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled, Reached
    from jobctl.jobspec.operations.targets.base import CheckRequest, RunRequest
    from jobctl.jobspec.plan.types import Plan


class InAllocation:
    """The jobs in Slurm, on the login node from which they were submitted."""

    def known(self, directory: JobDir, reached: Reached) -> SlurmAllocation:
        """Return a job in Slurm. Raises Refused if it is not known here where its files are."""
        plan, known = directory.plan(), directory.inventory()
        if plan is None or plan.slurm is None or known is None:
            raise Refused(
                f"what job `{directory.name}` was started with cannot be read here", "`jobctl up` with its spec"
            )
        return _allocation(
            directory, plan, Inventory(known.hosts, ssh_options(reached.ssh_config, reached.accept_new, known))
        )

    def homes(self, directory: JobDir) -> list[str]:
        """Return its login node."""
        known = directory.inventory()
        return [host.name for host in known.hosts] if known is not None else []

    def in_spec(self, spec: Path, directory: JobDir, reached: Reached) -> SlurmAllocation | None:
        """Return a job of which there is no trace here, where the block `slurm` of its spec says that it is.

        None without such a block, or if it names no login node and Slurm is not here.
        """
        place = _place_in_slurm(spec)
        if place is None or (place[0] is None and shutil.which("squeue") is None):
            return None
        from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
        from jobctl.jobspec.planner.slurm import work_directory

        login, folder = place
        inventory = Inventory((_login_host(login),), ssh_options(reached.ssh_config, reached.accept_new, None))
        return SlurmAllocation(directory, inventory, work_directory(folder, directory.name))

    def planned(self, compiled: Compiled, reached: Reached) -> tuple[Plan, SlurmAllocation]:
        """Return the plan of a compiled job, and the job in Slurm."""
        plan = plan_of(compiled)
        directory = job_of_name(plan.job)
        was_here = (directory.job_record() or {}).get("target") == plan.target
        options = ssh_options(reached.ssh_config, reached.accept_new, directory.inventory() if was_here else None)
        login = plan.slurm.login if plan.slurm else None
        return plan, _allocation(directory, plan, Inventory((_login_host(login),), options))

    def check(self, request: CheckRequest) -> tuple[Sequence[Finding], tuple[str, ...]]:
        """Return whether Slurm takes a job, and the name of its login node. Raises Refused without a job."""
        if request.compiled is None:
            raise Refused(
                "`check --target slurm` looks at a job", "name its spec: `jobctl check job.yaml --target slurm`"
            )
        plan, allocation = self.planned(request.compiled, request.reached)
        where = allocation.places()
        return allocation.preflight(plan, where, deep=request.deep), where

    def run(self, request: RunRequest, reporter: Reporter) -> int:
        """Run a command on a machine of the job's allocation, or on one that Slurm is asked for. Raises HostsFailed."""
        from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
        from jobctl.jobspec.operations.lifecycle.records import secrets_of
        from jobctl.jobspec.operations.resolve.channels import withheld_variables

        plan, allocation = self.planned(request.compiled, request.reached)
        index = node_number(plan, request.node or "0", range(len(plan.nodes)))
        try:
            hidden = withheld_variables(request.compiled.spec, os.environ)
            return allocation.run_oneoff(index, secrets_of(request.compiled), hidden, request.argv)
        except AllUnreachable as nothing:
            error = nothing.failures[allocation.login.name]
            raise HostsFailed(error.message, error.hint) from nothing


def _place_in_slurm(path: Path) -> tuple[str | None, str] | None:
    """Return login node and directory from a spec, whatever else is wrong with it; None if it has no block `slurm`."""
    from jobctl.jobspec.spec.load import load_spec
    from jobctl.jobspec.spec.reading.partial import Lost

    loaded = load_spec(path, environ=os.environ)
    seen = loaded.spec or loaded.draft
    with suppress(Lost):
        if seen is not None and seen.slurm is not None:
            return seen.slurm.login, seen.slurm.directory or str(loaded.directory)
    return None


def _login_host(login: str | None) -> Host:
    """Return the login node as a host of a hosts file; None is this machine."""
    user, _, name = (login or "localhost").rpartition("@")
    return Host(name, user=user or None)


def _allocation(directory: JobDir, plan: Plan, inventory: Inventory) -> SlurmAllocation:
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation

    assert plan.slurm is not None
    return SlurmAllocation(directory, inventory, plan.slurm.work, plan)
