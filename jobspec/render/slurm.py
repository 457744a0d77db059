"""A job of target `slurm`: the batch script, what it becomes on the nodes, and what these read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.types import Plan, SlurmOptions
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render import container
from jobctl.jobspec.render.autonomy import with_autonomy
from jobctl.jobspec.render.environment import shell_template
from jobctl.jobspec.render.errors import RenderError
from jobctl.jobspec.render.launcher import allocation, launcher
from jobctl.jobspec.render.payload import handed_over, launch_json
from jobctl.jobspec.render.quote import Rendered
from jobctl.jobspec.render.slurm_container import container_script, environ_file, image_settings, variables_of
from jobctl.jobspec.spec.durations import EARLIEST_SIGNAL, for_slurm

BATCH, PROGRAM = "job.sbatch", "allocation.py"
TO_SAVE = 30.0  # seconds between the warning of the time limit and that limit, beside the grace of processes
_MEMORY = ("--mem-per-cpu", "--mem-per-gpu")  # beside which sbatch takes no `--mem`
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./&|*()\[\]!~^-]+")


@dataclass(frozen=True, slots=True)
class SlurmFile:
    """One file below the job's directory. `shown` is whether people want to read it."""

    path: str
    content: bytes
    mode: int
    shown: bool = True


def slurm_files(plan: Plan, generation: Generation) -> Iterator[SlurmFile]:
    """Yield what `up` sends. Raises RenderError for what a batch script cannot say."""
    yield SlurmFile(BATCH, _batch(plan), 0o755)
    yield from starting_files(plan)
    yield SlurmFile("slurm.json", settings_file(plan), 0o644)
    yield SlurmFile("launch.json", _launches(plan), 0o600)
    yield SlurmFile("control.json", _control(plan, generation), 0o644)
    yield SlurmFile("launcher.py", launcher(), 0o755, shown=False)
    yield SlurmFile(PROGRAM, allocation(), 0o755, shown=False)


def mark(work: str) -> str:
    """Return the comment by which Slurm's queue knows a job of jobctl's: by the directory of its files."""
    return f"jobctl {work}"


def options_of(plan: Plan) -> SlurmOptions:
    """Return how Slurm is asked, of a plan for it."""
    assert plan.slurm is not None
    return plan.slurm


def slots(plan: Plan) -> list[int]:
    """Return the slot of each node: a machine has one for each role, so that it takes a trainer and a server."""
    roles = ["trainer", *sorted({node.role for node in plan.nodes} - {"trainer"})]
    return [roles.index(node.role) for node in plan.nodes]


def machines(plan: Plan) -> tuple[int, int]:
    """Return how many machines the job needs at least, and how many it can use at most."""
    taken = slots(plan)
    most = max(taken.count(slot) for slot in taken)
    return (plan.min_nodes, most) if plan.elastic else (most, most)


# The batch script.


def _batch(plan: Plan) -> bytes:
    given = options_of(plan)
    text = shell_template("job.sbatch.j2").render(
        lines=[Rendered(_option(name, value)) for name, value in batch_options(plan)],
        further=[Rendered(_further(option)) for option in given.options],
        python=given.python,
        work=given.work,
    )
    return text.encode()


def batch_options(plan: Plan) -> Iterator[tuple[str, str | None]]:
    """Yield what the batch script asks Slurm for. Raises RenderError for what it cannot say."""
    given, node = options_of(plan), plan.nodes[0]
    if "\\" in given.work:
        message = f"Slurm cannot write into a directory with a backslash in its name: {given.work}"
        raise RenderError("not-in-sbatch", message, "name another in `slurm.directory`")
    yield "--job-name", plan.job
    yield "--comment", mark(given.work)
    least, most = machines(plan)
    few, many = least + given.spares, most + given.spares
    yield "--nodes", str(many) if few == many else f"{few}-{many}"
    if few == many:  # of a range, Slurm would give as few nodes as it takes for the tasks
        yield "--ntasks-per-node", "1"
    named = (("--partition", given.partition), ("--account", given.account), ("--qos", given.qos))
    more = (("--constraint", given.constraint), ("--reservation", given.reservation), ("--gres", given.gres))
    limit = (("--time", for_slurm(given.time) if given.time else None),)
    yield from ((name, value) for name, value in (*named, *more, *limit) if value is not None)
    if given.exclusive:
        yield "--exclusive", None
    if node.container.cpus is not None:
        yield "--cpus-per-task", str(math.ceil(node.container.cpus))
    if node.container.memory is not None:
        yield "--mem", f"{math.ceil(node.container.memory / 2**20)}M"
    elif given.exclusive and not any(option.partition("=")[0] in _MEMORY for option in given.options):
        yield "--mem", "0"  # all that a node has: otherwise the cluster's default, which is for one core
    if given.mail:
        yield "--mail-user", given.mail
        yield "--mail-type", "END,FAIL"
    yield "--no-kill", None
    yield ("--no-requeue" if given.requeue in ("chain", "off") else "--requeue"), None
    yield "--signal", f"B:USR1@{_warning(plan.stop_grace, given.time)}"
    yield "--chdir", given.work
    yield "--output", "slurm.out"  # below --chdir: in a whole path `%` and backslashes would have a meaning
    yield "--open-mode", "append"


def _warning(grace: float, limit: float | None) -> int:
    """Return how many seconds before the time limit processes are told to end, as early as Slurm can."""
    seconds = min(math.ceil(grace + TO_SAVE), EARLIEST_SIGNAL)
    return min(seconds, max(1, int(limit / 2))) if limit else seconds


def _option(name: str, value: str | None) -> str:
    return name if value is None else f"{name}={_quoted(value)}"


def _further(option: str) -> str:
    """Return an option of the user's, with its value quoted where that needs it."""
    name, equals, value = option.partition("=")
    return f"{_quoted(name)}={_quoted(value)}" if equals else _quoted(name)


def _quoted(value: str) -> str:
    """Return a word as sbatch reads the lines of a script: quotes and backslashes as in a shell, and nothing else."""
    if _PLAIN.fullmatch(value):
        return value
    if not value.isprintable():
        raise RenderError("not-in-sbatch", f"a line of a batch script cannot hold {value!r}")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


# What runs on the nodes.


def starting_files(plan: Plan, *, look: bool = False) -> Iterator[SlurmFile]:
    """Yield what starts a launcher, or with `look` a command: only the user reads it, as it has the values of `env`."""
    yield SlurmFile("start.sh", _start_script(plan, look=look), 0o700)
    if options_of(plan).container != "none" and variables_of(plan):  # a container of another user could not read it
        yield SlurmFile("environ.json", environ_file(plan), 0o600)


def _start_script(plan: Plan, *, look: bool) -> bytes:
    """Return the script that becomes the launcher of a node, or with `look` a command that has what processes there have."""
    given, node = options_of(plan), plan.nodes[0]
    if given.container != "none":
        return container_script(plan, look=look)
    text = shell_template("slurm_start.sh.j2").render(
        environment=[f"{name}={value}" for name, value in node.container.env],
        python=node.container.python,
        workdir=None if plan.code else given.workdir,
        code=container.code_directory(plan.code) if plan.code else None,
        secrets=bool(node.launch.secrets),
        look=look,
    )
    return text.encode(errors="surrogateescape")


def settings_file(plan: Plan) -> bytes:
    """Return what the program inside the allocation has to know of the job."""
    given = options_of(plan)
    settings = {
        "job": plan.job,
        "slots": slots(plan),
        "min_nodes": machines(plan)[0],
        "spares": given.spares,
        "shrinks": plan.recovery.on_host_loss != "wait",
        "host_timeout": plan.recovery.host_timeout,
        "stop_grace": plan.stop_grace,
        "checkpoint": plan.checkpoint.dir if plan.checkpoint else None,
        "container": given.container,
        "requeue": given.requeue,
        "runner_python": given.python,
        **({"max_duration": plan.recovery.max_duration} if plan.recovery.max_duration else {}),
        **({"image": image_settings(plan)} if given.container != "none" else {}),
    }
    return json.dumps(settings, indent=2, sort_keys=True).encode() + b"\n"


def _launches(plan: Plan) -> bytes:
    """Return what each node's launcher does, one a line: a runner reads the one of its node."""
    return ("[\n" + ",\n".join(launch_json(node.launch) for node in plan.nodes) + "\n]\n").encode()


def _control(plan: Plan, generation: Generation) -> bytes:
    """Return the generation from which those of an allocation are made: with names in place of addresses."""
    given = plan.rendezvous.port is not None
    return handed_over(with_autonomy(plan, generation), {"port_is_given": given})
