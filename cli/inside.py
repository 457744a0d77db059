"""Looking into a job: a command with a node's environment, and what the job leaves behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.console import Failed
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.naming import is_service, node_number
from jobctl.options import Format
from jobctl.views.progress import Progress

if TYPE_CHECKING:
    from jobctl.jobs import Compiled
    from jobctl.jobspec.deploy.apply.deployer import Handle


PATIENCE = 60.0  # seconds for which `exec` waits until a node that begins has something to enter


def exec_in_node(deployer: Handle, node: str | None, argv: list[str]) -> int:
    """Run `argv` inside of a node (on `local`, with the environment of its first process); return its exit code."""
    from jobctl.jobspec.deploy.model.errors import CannotRun, DeployError, HostError

    try:
        place = node if node and is_service(deployer.plan, node) else node_number(deployer.plan, node or "0")
        return _enter(deployer, place, argv)
    except HostError:
        raise
    except CannotRun as error:
        raise Failed(error.message, error.code, error.hint) from error
    except DeployError as error:
        raise Failed(error.message, 2, error.hint) from error


def _enter(deployer: Handle, where: int | str, argv: list[str]) -> int:
    """Run `argv` there, as soon as something runs: `up` returns a moment before processes do."""
    from jobctl.jobspec.deploy.model.errors import NothingToEnter

    deadline = time.monotonic() + PATIENCE
    with Progress(quiet=False) as progress:
        while True:
            try:
                return deployer.enter(where, argv)
            except NothingToEnter as nothing:
                if time.monotonic() > deadline or not _begins(deployer, where):
                    raise
                progress.show(f"{nothing.message} yet")
            pause(deployer.interval)


def _begins(deployer: Handle, where: int | str) -> bool:
    """Say whether something is about to run there."""
    from jobctl.jobspec.deploy.model.observed import phase

    observed = deployer.observe()
    if phase(observed)[0] not in ("starting", "running", "degraded", "restarting"):
        return False
    there = observed.node(where) if isinstance(where, int) else None
    # What has failed in a job that is restarted begins again.
    return there is None or there.state in ("pending", "starting", "running") or phase(observed)[0] == "restarting"


def run_like_node(
    compiled: Compiled, node: str | None, argv: list[str], ssh_config: Path | None, accept_new: bool
) -> int:
    """Run `argv` with what the job's processes would have, and return its exit code."""
    from jobctl.bringup import secrets_of
    from jobctl.counting import devices_of
    from jobctl.jobs import deployer_of, job_of_name, plan_of
    from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
    from jobctl.jobspec.deploy.model.errors import CannotRun
    from jobctl.planning import inventory_for

    if compiled.target == "kubernetes":
        from jobctl.running import refuse

        raise refuse("run")
    directory = job_of_name(compiled.spec.name)
    old = directory.plan()
    deployer = deployer_of(directory, compiled.target, inventory_for(compiled, ssh_config, accept_new), old)
    plan = deployer.plan = plan_of(compiled, devices=devices_of(compiled, deployer, old))
    index = node_number(plan, node or "0", range(len(plan.nodes)))
    try:
        return deployer.look_around(
            plan, plan.nodes[index], RuntimeInputs(console.environ(), secrets_of(compiled)), argv
        )
    except CannotRun as error:
        raise Failed(error.message, error.code, error.hint) from error


def pull_job(deployer: Handle, directory: Path | None, output: Format) -> None:
    """Copy logs and outputs of the job into `directory`."""
    from jobctl.jobspec.deploy.store.code import names_in, note_pulled
    from jobctl.outcome import tell_failures

    target = directory or Path(f"{deployer.job.name}-pull")
    before = names_in(target)
    copied = deployer.fetch(target)
    if not copied:
        raise Failed(f"job `{deployer.job.name}` has left nothing to fetch", 2)
    words = ", ".join(f"{count} {what if count != 1 else what.removesuffix('s')}" for what, count in copied.items())
    console.say(f"fetched {words} into {target}")
    note_pulled(target, before)
    if output is Format.json:
        console.out_json({"job": deployer.job.name, "directory": str(target), "fetched": dict(copied)})
    if deployer.failures:
        tell_failures(deployer.failures)
        raise Failed("", 4)
