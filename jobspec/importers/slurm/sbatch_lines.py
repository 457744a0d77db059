"""`#SBATCH` lines: how many nodes a batch script asks for, and what of the rest the spec has a place for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jobctl.jobspec.importers.draft import Draft, Found, ImportProblem
from jobctl.jobspec.importers.escaping import literal
from jobctl.jobspec.importers.launchers.options import NODES_TAKEN
from jobctl.jobspec.importers.names import says_something
from jobctl.jobspec.importers.notes import LOGS_KEPT, concealed
from jobctl.jobspec.importers.slurm import recipes
from jobctl.jobspec.importers.slurm.option_syntax import exported, is_known, split
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.durations import in_one_unit, parse_slurm

_LINE = re.compile(r"#SBATCH(?=\s)(.*)")
_TOLD = "SLURM_"
_JOBCTL = "jobctl sets it itself"
# Options that become keys of `slurm` as they are.
_KEYS = {"--partition": "partition", "--account": "account", "--qos": "qos", "--constraint": "constraint",
         "--reservation": "reservation", "--mail-user": "mail"}  # fmt: skip
_DROPPED = {
    "--output": LOGS_KEPT,
    "--error": LOGS_KEPT,
    "--open-mode": LOGS_KEPT,
    "--array": "a spec is one job: import it once, and call `jobctl up --set name=…` for each task",
    "--dependency": "jobctl does not wait for other jobs: call `jobctl wait` before `up`",
    "--signal": "jobctl tells processes before the time limit: `stop_grace_period`",
    "--no-kill": _JOBCTL,
    "--mail-type": "Slurm writes when the job ends or fails",
    "--chdir": "the job runs in the folder of `code`",
    "--comment": _JOBCTL,
    "--wait": "`jobctl wait` does",
    "--parsable": _JOBCTL,
    "--hold": "call `jobctl up` when the job may start",
    "--test-only": "`jobctl check --target slurm` does",
    "--wrap": "a script is imported",
    "--gpu-bind": "each node has one task of Slurm's, which needs all devices; each process gets its own",
}
# Read where nodes, processes and devices are counted, and variables are set.
_COUNTED = {"--job-name", "--nodes", "--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--gpus-per-task", "--gpus",
            "--gpus-per-node", "--gres", "--exclusive", "--requeue", "--no-requeue", "--time", "--cpus-per-task", "--mem",
            "--export"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Batch:
    """What `#SBATCH` lines say. Options are those of the last line that names them; `lines` says which that is."""

    options: Mapping[str, str]
    lines: Mapping[str, int]
    late: tuple[int, ...] = ()
    container: str | None = None  # the program that starts containers

    @property
    def name(self) -> str | None:
        name = self.options.get("--job-name")
        return name if says_something(name) else None

    @property
    def nodes(self) -> int:
        first = _number(self.options.get("--nodes", "").partition("-")[0])
        if first:
            return first
        tasks, each = _number(self.options.get("--ntasks")), _number(self.options.get("--ntasks-per-node"))
        return -(-tasks // each) if tasks and each else 1

    @property
    def per_node(self) -> int:
        each, tasks = _number(self.options.get("--ntasks-per-node")), _number(self.options.get("--ntasks"))
        if each or tasks:
            return each or max(1, (tasks or 1) // self.nodes)
        of_gpu = _number(self.options.get("--ntasks-per-gpu"))
        return of_gpu * (self.devices or 1) if of_gpu and "--gpus-per-task" not in self.options else 1

    @property
    def gres(self) -> str | None:
        """What each node has, as `--gres` names it: other options may count the GPUs that it does not name."""
        said = self.options.get("--gres", "").removeprefix("gres/")
        gpus = None if _device_in(said) else self._gpus
        return ",".join(filter(None, (gpus, said))) or None

    @property
    def _gpus(self) -> str | None:
        """The GPUs of a node by the options that count nothing else."""
        for told, divided, times in (
            (self.options.get("--gpus-per-node", ""), 1, 1),
            (self.options.get("--gpus", ""), self.nodes, 1),
            (self.options.get("--gpus-per-task", ""), 1, self.per_node if "--gpus-per-task" in self.options else 1),
        ):
            kind, _, count = told.rpartition(":")
            if number := _number(count):
                each = max(1, number // divided) * times
                return f"gpu:{kind}:{each}" if kind else f"gpu:{each}"
        return None

    @property
    def devices(self) -> int | None:
        """How many devices a node has."""
        match = _device_in(self.gres)
        return int(match[2] or 1) if match else None

    def variables(self) -> dict[str, str]:
        """Return what Slurm tells the script; the number of the job, and of a process, nobody knows yet."""
        tasks = self.nodes * self.per_node
        told = {
            **{name: literal(value) for name, value in exported(self.options.get("--export", "")).items()},
            **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), str(self.nodes)),
            **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), str(tasks)),
            **dict.fromkeys(("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), str(self.per_node)),
            **dict.fromkeys((recipes.NODE_LIST, "SLURM_NODELIST", "SLURM_STEP_NODELIST"), recipes.node(0)),
            **dict.fromkeys(("SLURM_LAUNCH_NODE_IPADDR", "SLURMD_NODENAME"), recipes.node(0)),
        }
        if self.devices:
            told |= dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), str(self.devices))
        for option, name in (("--cpus-per-task", "SLURM_CPUS_PER_TASK"), ("--job-name", "SLURM_JOB_NAME")):
            if option in self.options:
                told[name] = literal(self.options[option])
        return told

    def completed(self, job: Found, read: Callable[[str], str | None]) -> Found:
        """Return the job with `slurm`, and with notes on what has no place. `read` returns the text of a file beside it."""
        draft = Draft(fields={**job.fields}, remarks={**job.remarks})
        slurm: dict[str, Any] = dict(_slurm(self, draft))
        _devices(self, draft, slurm)
        draft.fields["slurm"] = slurm
        _resources(self, draft)
        if draft.remarks.get("nodes") == NODES_TAKEN:
            del draft.remarks["nodes"]
            draft.fields["nodes"] = (self.nodes, self.nodes)
        least, most = draft.get("nodes") or (1, 1)
        if not least <= self.nodes <= most:
            draft.check(
                f"`#SBATCH` asks for {self.nodes} nodes, and the command starts {most}: `nodes` is the command's"
            )
        _names_left(draft)
        script = draft.get("script")
        if isinstance(script, str) and (names := recipes.of_task(read(script) or "")):
            draft.check(
                f"`{script}` reads {', '.join(names)}, which processes of jobctl do not have: RANK, LOCAL_RANK and"
                " WORLD_SIZE, or what its framework sets, say the same"
            )
        if "image" in draft.fields and self.container is not None:
            slurm["container"] = self.container
        for line in self.late:
            draft.drop(f"line {line}: #SBATCH", "Slurm reads such lines above the first command only")
        hosts = tuple(host for host in job.hosts if not host.name.startswith(recipes.NODE))
        missing = job.missing if hosts else 0
        notes = tuple(note for note in job.notes if not _of_placeholders(note))
        return replace(job, fields=draft.fields, remarks=draft.remarks, hosts=hosts, missing=missing,
                       notes=tuple(dict.fromkeys((*notes, *draft.notes))))  # fmt: skip

    def where(self, name: str) -> str:
        value = self.options[name]
        return f"line {self.lines[name]}: {concealed(f'#SBATCH {name}={value}' if value else f'#SBATCH {name}')}"


def _device_in(gres: str | None) -> re.Match[str] | None:
    """Find the devices among generic resources: group 1 is their kind, group 2 their number."""
    kind = r"(?:gres/)?(gpu|npu|dcu|xpu)(?::[^:,()]*[A-Za-z][^:,()]*)?(?::(\d+))?"
    return re.search(rf"(?:^|,){kind}(?=[,(]|$)", gres or "")


def _of_placeholders(note: str) -> bool:
    return re.match(r"check: \d+ hosts? are named", note) is not None


def read(text: str) -> Batch | None:
    """Return what the `#SBATCH` lines of a script say; None if it has none. Raises ImportProblem for more than one job."""
    options: dict[str, str] = {}
    lines: dict[str, int] = {}
    late: list[int] = []
    begun = False
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.match(line)
        begun = begun or (bool(line.strip()) and not line.startswith("#"))
        if match and begun:
            late.append(number)
        elif match:
            said, rest = split(_words(match[1]), batch=True)
            if {"hetjob", "packjob"} & {*rest}:
                hint = "leave the lines of one component in a copy of the script, and import that"
                raise ImportProblem(
                    "a heterogeneous job has several allocations, and a job of jobctl one", hint, number
                )
            said += [(word, "") for word in rest]
            options.update(said)
            lines.update({name: number for name, _ in said})
    return Batch(options, lines, tuple(late), _container(text)) if options or late else None


def _container(text: str) -> str | None:
    """Return what starts the containers of a script: pyxis does with Enroot."""
    said = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    if re.search(r"\b(apptainer|singularity)\s+(-\S+\s+)*(exec|run)\b", said):
        return "apptainer"
    return "enroot" if "--container-image" in said or re.search(r"\benroot\s+start\b", said) else None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def without_told(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables without those that Slurm sets."""
    return {name: value for name, value in env.items() if not name.startswith((_TOLD, "SLURMD_"))}


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[1-9]\d{0,5}", text) else None


def _slurm(batch: Batch, draft: Draft) -> Iterator[tuple[str, Any]]:
    """Yield keys of the block; note what has none."""
    for name, value in batch.options.items():
        if name in _KEYS and value:
            yield _KEYS[name], literal(value)
    if "--time" in batch.options:
        seconds = parse_slurm(batch.options["--time"])
        if seconds:
            yield "time", in_one_unit(seconds)
        else:
            draft.drop(batch.where("--time"), "it is not a time that ends")
    if batch.options.get("--exclusive"):
        draft.drop(batch.where("--exclusive"), "`exclusive: false` and `options` say it")
    if batch.options.get("--exclusive") != "":
        yield "exclusive", False
    if "--no-requeue" in batch.options:
        yield "requeue", "off"
    elif "--requeue" in batch.options:
        yield "requeue", "requeue"
    further = tuple(_further(batch, draft))
    if further:
        yield "options", further


def _further(batch: Batch, draft: Draft) -> Iterator[str]:
    for name, value in batch.options.items():
        if name in _DROPPED:
            draft.drop(batch.where(name), _DROPPED[name])
        elif not name.startswith("--"):
            draft.drop(batch.where(name), "sbatch does not know it")
        elif name not in _COUNTED and name not in _KEYS:
            if not is_known(name):
                draft.check(f"{batch.where(name)}: sbatch of 22.05 to 24.11 has no such option")
            yield literal(f"{name}={value}" if value else name)
    if batch.options.get("--export") in ("NONE", "NIL"):
        why = "the job gets the environment of `jobctl up`; `slurm.options` takes `--export=NONE`"
        draft.drop(batch.where("--export"), why)
    nodes = batch.options.get("--nodes", "")
    if nodes and not nodes.isdigit():
        draft.drop(batch.where("--nodes"), f'{batch.nodes} are taken; `nodes: "2:4"` makes a job elastic')


def _devices(batch: Batch, draft: Draft, slurm: dict[str, Any]) -> None:
    """Put the devices of a node where the command does not count them, and `gres` where that says more."""
    devices, count, gres = draft.get("devices"), batch.devices, batch.gres
    if isinstance(devices, str) and devices != "cpu" and ":" not in devices:
        if count:
            draft.fields["devices"] = devices = f"{devices}:{count}"
        else:
            draft.check("nothing says how many devices a node has: target slurm needs `devices: gpu:N`")
    match = _device_in(gres)
    kind = match[1] if match else None
    if isinstance(devices, str) and "devices" in draft.remarks and kind:
        draft.fields["devices"] = devices = ":".join((kind, *devices.split(":")[1:]))  # nothing else said which kind
    if isinstance(devices, Mapping) and count and devices["ids"] in ("0", f"0-{count - 1}"):
        draft.fields["devices"] = devices = f"{devices['kind']}:{count}"  # Slurm chooses which
    if kind and str(devices).partition(":")[0] == kind:
        draft.remarks.pop("devices", None)
    if gres and gres != devices:
        slurm["gres"] = literal(gres)


def _resources(batch: Batch, draft: Draft) -> None:
    """One launcher runs on a node: it gets the cores of all processes there."""
    cores = _number(batch.options.get("--cpus-per-task"))
    shared = batch.options.get("--exclusive") != "" and "--cpus-per-gpu" not in batch.options
    if cores or (shared and batch.per_node > 1):  # each task has a core if nothing says more
        draft.fields["resources"] = {**(draft.get("resources") or {}), "cpus": (cores or 1) * batch.per_node}
    memory = batch.options.get("--mem")
    if memory is None:
        return
    if match := re.fullmatch(r"([1-9]\d{0,9})([KMGT]?)B?", memory, re.IGNORECASE):
        size = f"{match[1]}{match[2].lower() or 'm'}"
        draft.fields["resources"] = {**(draft.get("resources") or {}), "memory": size}
    elif memory == "0" and batch.options.get("--exclusive") != "":
        draft.fields["slurm"]["options"] = (*draft.fields["slurm"].get("options", ()), "--mem=0")
    elif memory != "0":
        draft.drop(batch.where("--mem"), "it is not an amount of memory")


def _names_left(draft: Draft) -> None:
    """Say where the name of a node would have to stand, which nobody knows yet."""
    for key, value in draft.fields.items():
        if recipes.NODE in str(value):
            draft.check(
                f"`{key}` holds the name of a node, here {recipes.NODE}…: let the script read MASTER_ADDR instead"
            )
