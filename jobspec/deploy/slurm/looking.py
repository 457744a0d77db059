"""A command on a machine of Slurm's with what a process of the job would have: what it needs is sent, and removed afterwards."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from secrets import token_hex

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.sending.send_code import pack_code
from jobctl.jobspec.deploy.slurm.entering import has_terminal
from jobctl.jobspec.deploy.slurm.login import LoginNode, without
from jobctl.jobspec.deploy.slurm.preflight import NOW_NOT
from jobctl.jobspec.deploy.slurm.problems import slurm_error
from jobctl.jobspec.deploy.slurm.variables import of_other_steps
from jobctl.jobspec.deploy.transport.ending import ended_by_signals
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.artefact import Artefact
from jobctl.jobspec.render.slurm import options_of
from jobctl.jobspec.render.slurm_look import look_command, look_files, look_plan, machine_options


@dataclass(frozen=True, slots=True)
class Looking:
    """The job that a command is run like, the values of its secrets, and the variables that Slurm does not get."""

    inventory: Inventory
    login: LoginNode
    plan: Plan
    secrets: Mapping[str, str]
    hidden: Collection[str]


def run_oneoff(looking: Looking, place: tuple[str, str] | None, argv: Sequence[str]) -> int:
    """Run a command, and return its exit code. Raises HostError if Slurm gives it no machine.

    `place` is the number of Slurm's job that runs, and the machine there; None: Slurm is asked for one.
    """
    plan, login = look_plan(looking.plan, token_hex(4)), looking.login
    there = LoginNode(looking.inventory, login.job, options_of(plan).work, login.transport)
    command = look_command(plan, argv)
    srun = ["srun", *machine_options(plan), "--cpu-bind=none", f"--chdir={there.work}"]
    with ended_by_signals(), ExitStack() as afterwards:
        afterwards.callback(_erase, there)
        if place is None:
            _try_out(there, machine_options(plan))
        _send(there, plan, looking.secrets)
        if place is not None:
            srun = there.step(place)
        return there.interact([*without(looking.hidden), *srun], command, terminal=has_terminal())


def _erase(there: LoginNode) -> None:
    with suppress(HostError):  # the command has removed it itself, unless it never began
        there.erase()


def _try_out(login: LoginNode, options: Sequence[str]) -> None:
    """Ask Slurm whether it gives such a machine at all: `srun` waits for one that is busy or down."""
    result = login.transport.run([*without(of_other_steps(os.environ)), "srun", "--test-only", *options, "true"])
    if result.code != 0 and NOW_NOT not in result.err:
        raise slurm_error(login.name, "get a machine", result)


def _send(login: LoginNode, plan: Plan, secrets: Mapping[str, str]) -> None:
    files = [Artefact(file.path, file.content, file.mode) for file in look_files(plan)]
    login.send(files, [], pack_code(plan), secrets)
