"""Which variables would mislead Slurm's commands: those of a job that one is in, and those that come before a batch script."""

from __future__ import annotations

from collections.abc import Mapping

from jobctl.jobspec.allocation.slurm_environ import FOR_STEPS
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.slurm import batch_options, options_of

# What is about Slurm itself, or the user's defaults for `srun`: no job sets these.
_KEPT = frozenset(
    ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_ACCOUNT", "SLURM_CONSTRAINT", "SLURM_PARTITION", "SLURM_QOS")
    + ("SLURM_RESERVATION",)
)
_BEFORE = "SBATCH_"  # how the variables begin that come before the lines of a batch script
# Options whose variable has another name, or that several variables contradict.
_NAMES = {
    "--time": ("TIMELIMIT",),
    "--mem": ("MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU"),
    "--requeue": ("REQUEUE", "NO_REQUEUE"),
    "--no-requeue": ("REQUEUE", "NO_REQUEUE"),
}
# With these there would be another job, another log of it, no answer before the job has ended, or a job in another cluster,
# where only `sbatch` would look for it.
_NEVER = frozenset(("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_ERROR", "SBATCH_WAIT"))


def of_another_job(environ: Mapping[str, str]) -> set[str]:
    """Return the variables of the job whose shell this is, nothing outside of one (`salloc`, `srun --pty`).

    `srun` would ask for what that job has, or run in it; and the job that is submitted would have them too.
    """
    if "SLURM_JOB_ID" not in environ:
        return set()
    return {name for name in environ if name.startswith("SLURM") and name not in _KEPT}


def of_other_steps(environ: Mapping[str, str]) -> set[str]:
    """Return the variables by which `srun` would do something else than it is told: another job's, and those of users' own steps.

    The user's may come from the login shell of another machine, so they are named whether they are in `environ` or not.
    """
    return of_another_job(environ) | (FOR_STEPS - _KEPT) | {name for name in environ if name.startswith("SRUN_")}


def before_the_script(plan: Plan) -> set[str]:
    """Return the variables by which `sbatch` would do something else than the job's batch script says."""
    further = [option.partition("=")[0] for option in options_of(plan).options]
    names = [name for name, _ in batch_options(plan)] + [
        name for name in further if name.startswith("--") and name.isascii()
    ]
    return {_BEFORE + one for name in names for one in _NAMES.get(name, (_plain(name),))} | _NEVER


def in_the_script(plan: Plan, option: str, short: str) -> str | None:
    """Return the value of an option in the batch script, None if it has none: of several, `sbatch` takes the last one."""
    said = [value for name, value in batch_options(plan) if name == option and value is not None]
    for given in options_of(plan).options:
        name, _, value = given.partition("=")
        if given.startswith(short) and not given.startswith("--"):
            said.append(given[len(short) :].removeprefix("="))
        elif name == option:
            said.append(value)
    return said[-1] if said else None


def variable_of(option: str) -> str:
    """Return the variable that counts where the batch script does not have an option."""
    return _BEFORE + _plain(option)


def _plain(option: str) -> str:
    return option.removeprefix("--").replace("-", "_").upper()
