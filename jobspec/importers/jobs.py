"""From a command, a script or a list of variables to the job that it starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jobctl.jobspec.importers import roles
from jobctl.jobspec.importers.command import unwrap
from jobctl.jobspec.importers.common import finish
from jobctl.jobspec.importers.containers import in_containers
from jobctl.jobspec.importers.devices import NodeDevices
from jobctl.jobspec.importers.draft import Draft, Found, ImportProblem
from jobctl.jobspec.importers.env_list import names_in, read_list, read_otherwise
from jobctl.jobspec.importers.escaping import for_people, literal, required_variables
from jobctl.jobspec.importers.installs import installs, reads_files, setup_command
from jobctl.jobspec.importers.kubernetes import manifest
from jobctl.jobspec.importers.launchers import deepspeed, msrun, paddle, torchrun
from jobctl.jobspec.importers.launchers.python import python
from jobctl.jobspec.importers.names import job_name
from jobctl.jobspec.importers.notes import to_check
from jobctl.jobspec.importers.shell.expand import Read, settled_or_empty
from jobctl.jobspec.importers.shell.interpreter import read_script
from jobctl.jobspec.importers.shell.script import Command
from jobctl.jobspec.importers.slurm import sbatch_lines as slurm
from jobctl.jobspec.importers.slurm.images import made_images
from jobctl.jobspec.importers.start_command import StartCommand
from jobctl.jobspec.importers.together import merged
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.frameworks import NAMES


@dataclass(frozen=True, slots=True)
class ImportContext:
    """Where something is imported: the folder it is run in, what the spec's is called, how files beside it are read."""

    directory: str
    folder: str
    read: Read
    name: str | None = None
    framework: str | None = None


Find = Callable[[tuple[str, ...], dict[str, str], Draft, int | None, Read], NodeDevices]

# The launchers, by the name of the command and by that of the module.
_LAUNCHERS: Mapping[str, Find] = {
    "paddle.distributed.launch": lambda w, e, d, n, r: paddle.find(w, e, d, n),
    "torch.distributed.run": lambda w, e, d, n, r: torchrun.find(w, e, d, n),
    "torch.distributed.launch": lambda w, e, d, n, r: torchrun.find(w, e, d, n, older=True),
    "msrun": lambda w, e, d, n, r: msrun.find(w, e, d, n),
    "deepspeed": deepspeed.find,
}
_ALIASES = {
    "fleetrun": "paddle.distributed.launch",
    "paddle.distributed.fleet.launch": "paddle.distributed.launch",
    "torchrun": "torch.distributed.run",
    "torch.distributed.elastic": "torch.distributed.run",
    "mindspore.parallel.cluster.process_entity": "msrun",
    "deepspeed.launcher.runner": "deepspeed",
}
KNOWN = "torchrun, python -m paddle.distributed.launch, fleetrun, msrun, deepspeed"


def launcher(argv: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the launcher that a command is, and its arguments; None if it is another command."""
    told = python(argv)
    if told is not None and told.kind == "module":
        name, rest = told.what, told.args
    elif told is not None and told.kind == "script":
        # `python /opt/bin/torchrun`, `python -m` left out.
        name, rest = told.what.rpartition("/")[2], told.args
    else:
        name, rest = (argv[0].rpartition("/")[2] if argv else ""), tuple(argv[1:])
    name = _ALIASES.get(name, name)
    return (name, rest) if name in _LAUNCHERS else None


def import_command(argv: Sequence[str], context: ImportContext) -> Found:
    """Return the job that a command starts; `VAR=value` may stand before it. Raises ImportProblem."""
    words = tuple(literal(word) for word in (argv[1:] if list(argv[:1]) == ["$"] else argv))  # a prompt, copied with it
    command = Command(words, source=" ".join(argv))
    return _job(unwrap(command, context.read), {}, context)


def import_text(text: str, context: ImportContext) -> Found:
    """Return the job that a script, a list of variables, or a manifest starts. Raises ImportProblem."""
    yaml = _is_yaml(shown_file := _SHOWN.sub("", text))
    text = shown_file if yaml else text
    _refuse_other_files(text, yaml=yaml)
    if yaml and (match := _MANIFEST.search(text)):
        return _by_manifest(manifest.read(text, text.count("\n", 0, match.end()) + 1), context)
    listed = read_list(text)
    if listed is not None:
        return _job((), listed, context)
    beside = context.read
    batch = slurm.read(text)
    script = read_script(text, beside, batch.variables() if batch else None)
    taken: set[str] = set()

    def read(name: str) -> str | None:
        taken.add(name.removeprefix("./"))
        return script.files.get(name.removeprefix("./")) or beside(name)

    context = replace(context, read=read)
    images, commands = made_images(script.commands)
    launches = tuple(launch for command in commands for launch in unwrap(command, context.read, images))
    env = script.env
    if batch:
        launches = tuple(replace(launch, env=slurm.without_told(launch.env)) for launch in launches)
        env, context = slurm.without_told(env), replace(context, name=context.name or batch.name)
    job = _job(launches, env, context)
    lost = script.lost(taken - {job.fields.get("script")})
    job = replace(job, notes=tuple(dict.fromkeys((*job.notes, *script.notes, *lost))))
    return batch.completed(job, context.read) if batch else job


def _by_manifest(found: manifest.ManifestJob, context: ImportContext) -> Found:
    _check_same(context.framework, found.framework)
    context = replace(context, framework=found.framework)
    job = found.completed(_job(unwrap(found.command, context.read), {}, context))
    return replace(job, fields={**job.fields, "name": context.name or found.name})


_MANIFEST = re.compile(r"(^|[{,])\s*[\"']?apiVersion[\"']?\s*:", re.MULTILINE)
_SHOWN = re.compile(r"\A\s*?[$#] cat .*$", re.MULTILINE)  # above a file, in documents
_SPEC = re.compile(r"^framework\s*:", re.MULTILINE)
_COMPOSE = re.compile(r"^services\s*:", re.MULTILINE)
_NO_CONTENT = re.compile(r"\s*(#.*)?")
_BEGINS_YAML = re.compile(r"\s*([{%-]|[\"']?[\w./-]+[\"']?\s*:(\s|$))")


def _is_yaml(text: str) -> bool:
    """Say whether a text can be YAML, by its first line with content; a script may have a manifest in a heredoc."""
    first = next((line for line in text.splitlines() if not _NO_CONTENT.fullmatch(line)), "")
    return not text.startswith("#!") and _BEGINS_YAML.match(first) is not None


def _refuse_other_files(text: str, *, yaml: bool) -> None:
    if not text.strip():
        raise ImportProblem("there is nothing in it", "a launch command, a script or a list of variables is imported")
    if yaml and (match := _SPEC.search(text)):
        line = text.count("\n", 0, match.start()) + 1
        raise ImportProblem("this is a job spec already", "`jobctl validate` checks it", line)
    if yaml and (match := _COMPOSE.search(text)):
        line = text.count("\n", 0, match.start()) + 1
        hint = "import the command of its service: jobctl import -- COMMAND"
        raise ImportProblem("a compose file cannot be imported", hint, line)


def _job(launches: Sequence[StartCommand], env: Mapping[str, str], context: ImportContext) -> Found:
    """Return the job of the launches; what else runs is noted. `env` is what a script leaves behind."""
    launches = in_containers(launches)
    starting = [launch for launch in launches if launcher(launch.argv)]
    if starting:
        job = merged([(launch, _started(launch, context)) for launch in starting])
    elif processes := _processes(launches, context):
        job = _by_roles(processes, context)
        unlike = [one for one in launches if one not in processes and _is_alike(one, processes[0])]
        if unlike:
            job = replace(job, notes=(*job.notes, to_check(f"{unlike[0].where}`{unlike[0].told}`: {_FIRST}")))
        starting = [*processes, *unlike]
    elif not launches or (not _trains(launches) and roles.by_variables(env)):
        job = _by_variables(env, context)
    else:
        raise _no_launcher(launches)
    folder = starting[0].folder if starting else "."
    return _with_rest(job, [launch for launch in launches if launch not in starting], folder)


# Launchers.


def _started(launch: StartCommand, context: ImportContext) -> Found:
    found = launcher(launch.argv)
    assert found is not None
    name, words = found
    draft = _draft(launch)
    env = _given(launch)
    devices = _LAUNCHERS[name](words, env, draft, launch.line, context.read)
    _check_framework(draft, context, launch.line)
    return _finished(draft, devices, env, launch, context)


def _draft(launch: StartCommand) -> Draft:
    return Draft(image=launch.container.image if launch.container else None)


def _given(launch: StartCommand) -> dict[str, str]:
    return {name: value for name, value in launch.env.items() if value is not None}


def _finished(
    draft: Draft, devices: NodeDevices, env: Mapping[str, str], launch: StartCommand, context: ImportContext
) -> Found:
    container = launch.container.option("--name") if launch.container else None
    draft.set("name", job_name(context.name, draft.name, container, context.folder))
    _check_env_files(draft, launch, context)
    passed = {name: None for name, value in launch.env.items() if value is None}
    given = {**env, **passed}
    for name in _replaced(launch, context):
        given.pop(name, None)
    return finish(draft, devices, given, launch, context.directory)


def _replaced(launch: StartCommand, context: ImportContext) -> list[str]:
    """Return the variables of a container that env files of `docker exec` replace: in a spec `env` counts before `env_file`."""
    own = launch.container.env if launch.container else {}
    texts = (context.read(settled_or_empty(name)) or "" for name in launch.env_files)
    told = [name for text in texts for name in names_in(text)]
    return [name for name in told if name in own and launch.env.get(name) == own[name]]


def _check_env_files(draft: Draft, launch: StartCommand, context: ImportContext) -> None:
    """Note values that are read otherwise in `env_file` than by Docker; all, where the file is not here."""
    options = launch.container.options if launch.container else ()
    for name in (*(value for option, value in options if option == "--env-file"), *launch.env_files):
        text = context.read(settled_or_empty(name))
        names = [] if text is None else read_otherwise(text)
        if text is None or names:
            told = f"{name} ({', '.join(names)})" if names else name
            draft.check(f"--env-file {told}: Docker takes values as they are, {_AS_COMPOSE}")


_AS_COMPOSE = "`env_file` takes off quotes and ` #` with what follows, and fills in `$NAME`, as Compose does"


def _check_framework(draft: Draft, context: ImportContext, line: int | None) -> None:
    _check_same(context.framework, draft.get("framework"), line)


def _check_same(wanted: str | None, is_: str, line: int | None = None) -> None:
    if wanted not in (None, is_):
        raise ImportProblem(f"this is a job of {is_}, not of {wanted}", "leave out --framework", line)


# Processes that are told their place by variables, and commands that no launcher starts.


def _processes(launches: Sequence[StartCommand], context: ImportContext) -> list[StartCommand]:
    """Return the processes that are one job: those that train, and run the same, and their servers."""
    every = [one for one in launches if _is_process(one, context)]
    if not every:
        return []
    first = max([one for one in every if not roles.serves(one)] or every, key=roles.likelihood)
    return [one for one in every if one.argv == first.argv or (roles.serves(one) and _same_program(one, first))]


def _same_program(one: StartCommand, other: StartCommand) -> bool:
    this, that = python(one.argv), python(other.argv)
    return this is not None and that is not None and (this.kind, this.what) == (that.kind, that.what)


def _is_alike(launch: StartCommand, first: StartCommand) -> bool:
    """Say whether a process is told another place in the same job, beside its arguments."""
    return roles.has_role(launch) and _same_program(launch, first)


_FIRST = "all processes get the arguments of the first, and read their place in the job from variables"


def _is_process(launch: StartCommand, context: ImportContext) -> bool:
    runs = python(launch.argv) is not None or (launch.container is not None and launch.argv)
    return bool(runs) and _framework(launch, context) is not None and not installs(launch)


def _framework(launch: StartCommand, context: ImportContext) -> str | None:
    return context.framework or roles.framework(launch) or roles.by_imports(launch, context.read)


def _by_roles(processes: Sequence[StartCommand], context: ImportContext) -> Found:
    first = next((one for one in processes if not roles.serves(one)), processes[0])
    draft = _draft(first)
    if unlike := next((one for one in processes if one.argv != first.argv), None):
        draft.check(f"`{unlike.told}`: servers get the trainers' arguments, as all processes get the same")
    env = _given(first)
    name = _framework(first, context)
    assert name is not None
    devices = roles.find([first, *(one for one in processes if one is not first)], name, env, draft)
    hosts = tuple(host for process in processes for host in process.hosts)
    logged = any(process.logged for process in processes)
    job = _finished(draft, devices, env, replace(first, hosts=hosts, logged=logged), context)
    return replace(job, hosts=roles.by_rank(job.hosts, processes))


def _by_variables(env: Mapping[str, str], context: ImportContext) -> Found:
    """Return the job of variables alone; which script they are for nobody says."""
    name = context.framework or roles.by_variables(env)
    if name is None:
        hint = f"a launch command has one of {KNOWN}"
        raise ImportProblem("there is no launch command, and no variable of a launcher", hint)
    draft = Draft()
    rest = dict(env)
    launch = StartCommand(("python3", "train.py"), rest)
    devices = roles.find([launch], name, rest, draft)
    draft.remarks["script"] = "put your script here: variables name none"
    return _finished(draft, devices, rest, launch, context)


# What else a script does.

# What changes the shell that it is called in, and so no other process.
_MODULES = {"module", "ml", "conda", "mamba", "micromamba", "spack"}
_SETUP_RUNS = "and `setup` in the folder of `code`: name the file as it is seen there"
_ENVIRONMENTS = "name the Python of that environment in `container.python`, variables that it sets in `env`"


def _trains(launches: Iterable[StartCommand]) -> bool:
    return any(python(launch.argv) or launch.container for launch in launches)


def _with_rest(job: Found, rest: Iterable[StartCommand], folder: str) -> Found:
    """Return the job, which runs in `folder`, with what else ran: what installs becomes `setup`, the rest is noted."""
    setup: list[str] = []
    notes: list[str] = []
    told = [item for key in ("env", "secrets") if isinstance(item := job.fields.get(key), Mapping | tuple)]
    given = {name for item in told for name in item}
    for launch in rest:
        notes += launch.notes
        if installs(launch) and (command := setup_command(launch, given)) is not None:
            setup.append(command)
            if launch.folder not in (folder, job.fields.get("code")) and reads_files(launch):
                notes.append(to_check(f"{launch.where}`{launch.told}` runs in `{launch.folder}`, {_SETUP_RUNS}"))
        elif launch.argv:
            why = _ENVIRONMENTS if launch.head in _MODULES else "do it before `up`, or in `setup`"
            notes.append(f"not carried over: {launch.where}`{launch.told}` ({why})")
    fields = {**job.fields, "setup": tuple(dict.fromkeys(setup))} if setup else job.fields
    asked = sorted(set(references(fields)))
    later = [name for name in asked if _LATER.fullmatch(name)]
    if later:
        notes.append(f"check: {', '.join(later)}: {_PUT_IN}")
    if asked := [name for name in asked if name not in later]:
        notes.append(f"check: {', '.join(asked)}: taken from the environment, or from `.env`, where jobctl is called")
    return replace(job, fields=fields, notes=tuple(dict.fromkeys((*job.notes, *notes))))


# What Slurm sets in a job, or a shell for itself.
_LATER = re.compile(r"SLURM_\w+|SLURMD_\w+|RANDOM|SECONDS|BASHPID")
_PUT_IN = "only a Slurm job or a shell sets it: put a value in, or let the script find one"


def references(value: object) -> Iterator[str]:
    """Yield the variables that a value of the spec cannot do without."""
    if isinstance(value, str):
        yield from required_variables(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from references(item)


_SUBMITTED = {
    "sbatch": "batch script that it submits: jobctl import run.sbatch",
    "kubectl": "manifest that it submits: jobctl import job.k8s.yaml",
}


def _no_launcher(launches: Sequence[StartCommand]) -> ImportProblem:
    first = next((one for one in launches if _trains([one])), launches[0])
    if submits := next((one for one in launches if one.head in _SUBMITTED), None):
        hint = f"import the {_SUBMITTED[submits.head]}"
        return ImportProblem(f"`{submits.told}` submits a job, and starts none itself", hint, submits.line)
    if python(first.argv) is not None:
        command = replace(first, source="").told
        return ImportProblem(
            f"nothing says which framework `{command}` uses",
            f"add `--framework` with its name ({NAMES}); jobctl will start a process on each device",
            first.line,
        )
    if first.container is not None and not first.argv:
        hint = "name it: docker run … IMAGE COMMAND"
        return ImportProblem(f"what `{first.container.image}` runs by itself is not known", hint, first.line)
    if len(launches) == 1 or first.container is not None:
        what = f"`{for_people(first.head or first.source)}` is not a launcher that jobctl knows"
    else:
        what = "none of these commands is a launcher that jobctl knows"
    return ImportProblem(what, f"it knows {KNOWN}, and docker run, ssh or mpirun around them", first.line)
