"""A command in Slurm with what a process of the job would have: what is sent for it, and how Slurm is asked for a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jobctl.jobspec.plan.known_environ import known_environ, with_variables
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.launcher import allocation
from jobctl.jobspec.render.slurm import (
    PROGRAM,
    SlurmFile,
    batch_options,
    mark,
    options_of,
    settings_file,
    starting_files,
)

# Of what the job asks for: what one machine of it has.
_OF_MACHINE = frozenset(
    ("--job-name", "--partition", "--account", "--qos", "--constraint", "--reservation", "--gres", "--time")
    + ("--exclusive", "--cpus-per-task", "--mem")
)
# Options of `sbatch` that `srun` does not know, or that are about the job as a whole: its nodes, its files, its turn.
_OF_BATCH = frozenset(
    ("--array", "-a", "--batch", "--begin", "-b", "--dependency", "-d", "--deadline", "--error", "-e", "--export-file")
    + ("--get-user-env", "--hold", "-H", "--ignore-pbs", "--input", "-i", "--kill-on-invalid-dep", "--mail-type")
    + ("--mail-user", "--nodefile", "-F", "--nodelist", "-w", "--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node")
    + ("--no-requeue", "--open-mode", "--output", "-o", "--parsable", "--requeue", "--signal", "--spread-job")
    + ("--switches", "--wait", "-W", "--wait-all-nodes", "--wrap")
)


def look_plan(plan: Plan, identity: str) -> Plan:
    """Return the plan with a directory of its own in place of the job's; no job has such a name."""
    given = options_of(plan)
    top = given.work.rpartition("/")[0]
    nodes = tuple(with_variables(node, known_environ(plan, node)) for node in plan.nodes)
    return replace(plan, nodes=nodes, slurm=replace(given, work=f"{top}/.look-{plan.job}.{identity}"))


def look_files(plan: Plan) -> Iterator[SlurmFile]:
    """Yield what is sent for a command. Raises RenderError for what an engine cannot say."""
    settings = {**json.loads(settings_file(plan)), "scrub": list(plan.nodes[0].launch.scrub)}
    yield from starting_files(plan, look=True)
    yield SlurmFile("slurm.json", json.dumps(settings, indent=2, sort_keys=True).encode() + b"\n", 0o644)
    yield SlurmFile(PROGRAM, allocation(), 0o755, shown=False)


def look_command(plan: Plan, argv: Sequence[str]) -> list[str]:
    """Return what runs a command on a machine of Slurm's."""
    given = options_of(plan)
    return [given.python, f"{given.work}/{PROGRAM}", "look", "--work", given.work, "--", *argv]


def machine_options(plan: Plan) -> list[str]:
    """Return the options by which `srun` asks for one machine like those of the job."""
    named = [(name, value) for name, value in batch_options(plan) if name in _OF_MACHINE]
    further = [option for option in options_of(plan).options if _name(option) not in _OF_BATCH]
    words = [name if value is None else f"{name}={value}" for name, value in named]
    return [*words, f"--comment={mark(options_of(plan).work)}", "--nodes=1", "--ntasks=1", *further]


def _name(option: str) -> str:
    """Return the name of an option. The value of a short one follows at once."""
    return option.partition("=")[0] if option.startswith("--") else option[:2]
