"""What Slurm is asked for, out of the spec: an allocation instead of hosts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.plan.types import HostRef, SlurmOptions
from jobctl.jobspec.planner.placement import Place, Task

if TYPE_CHECKING:
    from jobctl.jobspec.planner.context import Context, Request
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.parts.slurm import Slurm

# What srun tells of the one task that the launcher is. Frameworks would take it for one of their ranks.
TASK_VARIABLES = (
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS*", "SLURM_NPROCS", "SLURM_GTIDS", "SLURM_STEP*"),
    *("SLURM_TASK*", "SLURM_SRUN*", "SLURM_LAUNCH*", "SLURM_DISTRIBUTION", "PMI_*", "PMIX_*"),
)


def slurm_of(spec: Spec, context: Context) -> SlurmOptions:
    """Return what the spec's block `slurm` asks for; without one, what any cluster can do."""
    given = spec.slurm or _empty()
    directory = given.directory or context.directory
    return SlurmOptions(
        login=given.login,
        work=work_directory(directory, spec.name),
        workdir=context.directory if given.login is None else directory,
        spares=given.spares,
        container=given.container,
        python=given.python,
        partition=given.partition,
        account=given.account,
        qos=given.qos,
        time=given.time or spec.recovery.max_duration,
        constraint=given.constraint,
        reservation=given.reservation,
        gres=given.gres or _gres(spec),
        exclusive=given.exclusive,
        mail=given.mail,
        options=given.options,
        requeue=given.requeue,
    )


def work_directory(directory: str, job: str) -> str:
    """Return where the files of a job are, below a directory that all nodes see."""
    return f"{directory.rstrip('/')}/.jobctl/{job}"


def _empty() -> Slurm:
    from jobctl.jobspec.spec.parts.slurm import Slurm

    return Slurm()


def _gres(spec: Spec) -> str | None:
    """Return the devices of a node as Slurm counts them."""
    wanted = spec.devices
    count = len(wanted.ids) if wanted.ids is not None else wanted.count
    return f"{wanted.kind}:{count}" if wanted.kind != "cpu" and count else None


def runs_on_nodes(spec: Spec, context: Context) -> bool:
    """Say whether the job's processes run on the nodes of an allocation themselves, without containers."""
    return context.traits.in_allocation and (spec.slurm is None or spec.slurm.container == "none")


def tasks_in_allocation(request: Request) -> list[Task]:
    """Return one node for each node of the allocation. Which machine that is, is known when the allocation begins.

    A role with a number of processes (MindSpore's scheduler) has machines of its own: a machine runs one launcher.
    """
    tasks: list[Task] = []
    for role in request.roles:
        count = request.most if role.total is None else min(role.total, request.most)
        for turn in range(count):
            name = f"node-{len(tasks)}"
            share = None if role.total is None else len(range(turn, role.total, count))
            tasks.append(Task(role.name, Place(HostRef(name, name), None, None), share))
    return tasks
