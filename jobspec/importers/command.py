"""From a command as it was typed to the launcher in it: what stands around it (sudo, ssh, docker run, mpirun …) is taken off."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.draft import HostLine, ImportProblem
from jobctl.jobspec.importers.escaping import for_shell, is_constant
from jobctl.jobspec.importers.launchers import docker
from jobctl.jobspec.importers.launchers.docker import DockerRun
from jobctl.jobspec.importers.many_hosts import on_many_hosts
from jobctl.jobspec.importers.mpi import mpirun
from jobctl.jobspec.importers.notes import to_check
from jobctl.jobspec.importers.option_words import leading
from jobctl.jobspec.importers.shell.expand import Read, settled_or_empty
from jobctl.jobspec.importers.shell.interpreter import read_script
from jobctl.jobspec.importers.shell.script import Command
from jobctl.jobspec.importers.slurm.wrappers import apptainer, enroot, srun
from jobctl.jobspec.importers.start_command import Inside, StartCommand, in_folder
from jobctl.jobspec.importers.terminals import screen, tmux

DEEPEST = 8
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def unwrap(command: Command, read: Read, images: Mapping[str, str] | None = None) -> Inside:
    """Return the launches that `command` comes to: more than one where it is a script. Raises ImportProblem.

    `images` are those that were made before, by their files and names.
    """
    env: dict[str, str | None] = dict(command.env)
    start = StartCommand(command.argv, env, command.line, command.source, command.text, command.maybe, command.folder)
    start = replace(start, logged=command.logged, images=images or {}, patterns=command.patterns, stdin=command.stdin)
    return tuple(_unwrap(start, read, 0))


def _unwrap(launch: StartCommand, read: Read, depth: int) -> Iterator[StartCommand]:
    if depth > DEEPEST:
        raise ImportProblem(f"more than {DEEPEST} commands around a command", None, launch.line)
    launch = _without_assignments(launch)
    wrapper = _WRAPPERS.get(launch.head)
    script = _script_file(launch, read)
    inside = wrapper(launch, read) if wrapper else script
    if inside is None:
        yield launch
    else:
        for one in inside:
            yield from _unwrap(one, read, depth + 1)


def _without_assignments(launch: StartCommand) -> StartCommand:
    argv, env = list(launch.argv), dict(launch.env)
    while argv and (match := _ASSIGNMENT.fullmatch(argv[0])):
        env[match[1]] = match[2]
        argv.pop(0)
    return replace(launch, argv=tuple(argv), env=env)


def _script_file(launch: StartCommand, read: Read) -> Inside | None:
    """`./run.sh`: a script that lies here."""
    name = settled_or_empty(launch.argv[0]) if launch.argv else ""
    if not name.endswith((".sh", ".bash")) or launch.container is not None:
        return None
    return _file(launch, name, launch.argv[1:], read)


def _file(launch: StartCommand, name: str, arguments: Sequence[str], read: Read) -> Inside:
    text = read(name)
    if text is None and launch.remote and (text := read(posixpath.basename(name))) is not None:
        said = f"`{name}` is taken to be the `{posixpath.basename(name)}` that lies here"
        launch = replace(launch, notes=(*launch.notes, to_check(said)))
    if text is None:
        hint = "call it where the script lies; or name what it starts after `--`"
        raise ImportProblem(f"there is no script `{name}` here to look into", hint, launch.line)
    return _inner(replace(launch, line=None), text, read, arguments)


def _read(launch: StartCommand, arguments: Sequence[str] | None, read: Read) -> Inside:
    """Return the commands that a shell reads from its standard input."""
    text = for_shell(launch.stdin or "")
    here = launch if text.startswith("\n") else replace(launch, line=None)  # otherwise it is a file
    return _inner(replace(here, stdin=None), text, read, arguments)


def _inner(launch: StartCommand, text: str, read: Read, arguments: Sequence[str] | None = None) -> Inside:
    """Return the commands of a script inside of `launch`; lines are the outer command's, if that has one."""
    given = {name: value for name, value in launch.env.items() if value is not None}
    told = None if arguments is None else tuple(arguments)
    script = read_script(text, read, given, launch.line or 1, launch.folder, told)
    passed = {name: value for name, value in launch.env.items() if value is None}
    return tuple(
        replace(
            launch,
            argv=command.argv,
            env={**passed, **command.env},
            source=command.source,
            text=command.text,
            line=launch.line or command.line,
            maybe=launch.maybe or command.maybe,
            folder=command.folder,
            logged=launch.logged or command.logged,
            patterns=command.patterns,
            stdin=launch.stdin if command.stdin is None else command.stdin,
            notes=(*launch.notes, *script.notes, *script.lost()),
        )
        for command in script.commands
    )


# What stands around commands. Each returns what is inside, None if it is a command of its own after all.


def _last(options: Sequence[tuple[str, str]], *names: str) -> str | None:
    """Return the value of an option, None if it is not given."""
    return next((value for name, value in reversed(options) if name in names), None)


def _prefix(with_value: str = "", further: int = 0, why: str = "") -> Callable[[StartCommand, Read], Inside | None]:
    """Return how to take off a command that runs its arguments, after its options and `further` words of its own."""

    def inside(launch: StartCommand, read: Read) -> Inside | None:
        _, rest = leading(launch.argv[1:], {*with_value.split()})
        if len(rest) <= further:
            return None
        inner = replace(launch, argv=tuple(rest[further:]))
        return (inner.noting(" ".join(launch.argv[: len(launch.argv) - len(rest) + further]), why) if why else inner,)

    return inside


def _sshpass(launch: StartCommand, read: Read) -> Inside | None:
    """`sshpass -p PASSWORD ssh …`: no note shows the password."""
    _, rest = leading(launch.argv[1:], {"-p", "-f", "-d", "-P"})
    return (replace(launch, argv=tuple(rest), source="", text=""),) if rest else None


def _su(launch: StartCommand, read: Read) -> Inside | None:
    """`su - USER -c 'COMMAND'`, `su - USER <<EOF`."""
    words = launch.argv[1:]
    if "-c" in words[:-1]:
        return (replace(launch, argv=("sh", "-c", words[words.index("-c") + 1])),)
    return None if launch.stdin is None else (replace(launch, argv=("sh",)),)


def _kubectl(launch: StartCommand, read: Read) -> Inside | None:
    """`kubectl exec POD -- COMMAND`."""
    if "exec" not in launch.argv or "--" not in launch.argv[:-1]:
        return None
    inner = replace(launch, argv=launch.argv[launch.argv.index("--") + 1 :])
    return (inner.noting("kubectl exec", "what its pod has is not known here: set `image`, or import its manifest"),)


def _env(launch: StartCommand, read: Read) -> Inside | None:
    options, rest = leading(launch.argv[1:], {"-u", "--unset", "-C", "--chdir", "-S"})
    names = {name for name, _ in options}
    if not rest or "-S" in names:
        return None
    gone = {value for name, value in options if name in ("-u", "--unset")}
    kept = {} if names & {"-", "-i", "--ignore-environment"} else launch.env
    inner = replace(launch, argv=tuple(rest), env={name: value for name, value in kept.items() if name not in gone})
    return (in_folder(inner, _last(options, "-C", "--chdir")),)


def _run(launch: StartCommand, read: Read) -> Inside | None:
    """`conda run -n NAME …`, `uv run …`: the image has the environment."""
    if launch.argv[1:2] != ("run",):
        return None
    takes = "-n --name -p --prefix --cwd --with --python -e --env --directory --project --group --extra"
    options, rest = leading(launch.argv[2:], {*takes.split()})
    if not rest:
        return None
    inner = in_folder(replace(launch, argv=tuple(rest)), _last(options, "--cwd", "--directory"))
    return (inner.noting(f"{launch.head} run", "the image has to bring what that environment holds"),)


def _shell(launch: StartCommand, read: Read) -> Inside | None:
    words, reads = list(launch.argv[1:]), False
    while words and re.fullmatch(r"-[a-z]*|--\w+|-o|pipefail", words[0]):
        word = words.pop(0)
        reads = reads or word == "-s"
        if "c" in word and not word.startswith("--"):
            return _inner(launch, for_shell(words[0]), read, words[2:]) if words else None
    if launch.stdin is not None and (reads or not words):
        return _read(launch, words, read)
    if not words:
        return None
    name = settled_or_empty(words[0])
    return None if launch.container is not None or not name else _file(launch, name, words[1:], read)


_SSH_VALUES = "-p -l -i -o -F -J -L -R -D -b -c -E -e -I -m -O -Q -S -W -w -B"
_SSH_OWN = {"-F", "-J", "-i", "-o"}  # what says how a host is reached, beside its user and port


def _ssh(launch: StartCommand, read: Read) -> Inside | None:
    found, rest = leading(launch.argv[1:], {*_SSH_VALUES.split()})
    more, words = leading(rest[1:], {*_SSH_VALUES.split()})
    if not rest or not (words or launch.stdin):
        return None
    options = dict([*found, *more])
    user, at, name = rest[0].rpartition("@")
    number = options.get("-p", "")
    host = HostLine(
        values.plain(name), (user if at else options.get("-l")) or None, int(number) if number.isdigit() else None
    )
    if not is_constant(rest[0]) or not values.host_name(name):
        inner = replace(launch, remote=True).noting(f"ssh {rest[0]}", "the host is not known here: add it to hosts.txt")
    elif values.loopback(name):
        inner = launch
    else:
        inner = replace(launch, hosts=(*launch.hosts, host), remote=True)
    for name in sorted(_SSH_OWN & options.keys()):
        said = re.split(r"[=\s]", options[name])[0] if name == "-o" else options[name]  # what follows may be a password
        inner = inner.noting(f"ssh {name} {said}", "SSH is as your own configuration says, or `--ssh-config`")
    inner = replace(inner, env={})
    return _inner(inner, for_shell(" ".join(words)), read) if words else _read(inner, None, read)


def _docker(launch: StartCommand, read: Read) -> Inside | None:
    words = list(launch.argv[1:])
    if words[:1] == ["container"]:
        words.pop(0)
    if words[:1] == ["exec"]:
        return _docker_exec(launch, words[1:])
    if words[:1] != ["run"] or launch.container is not None:
        return None
    container = docker.split(words[1:], launch.line)
    if launch.head == "nvidia-docker":
        container = replace(container, options=(("--gpus", "all"), *container.options))
    return (_in_container(launch, container),)


def _in_container(launch: StartCommand, container: DockerRun) -> StartCommand:
    """Return what runs in the container; of the variables around it, those that `-e NAME` passes on."""
    entry = container.option("--entrypoint")
    argv = (entry, *container.argv) if entry else container.argv  # an empty one takes away that of the image
    env = {name: launch.env.get(name) if value is None else value for name, value in container.env.items()}
    if entry is not None:
        container = replace(container, options=tuple(o for o in container.options if o[0] != "--entrypoint"))
    return replace(launch, argv=argv, env=env, container=container, folder=".")


_EXEC_VALUES = "-e --env -w --workdir -u --user --env-file --detach-keys"


def _docker_exec(launch: StartCommand, words: Sequence[str]) -> Inside | None:
    env = dict(launch.env)
    options, rest = leading(words, {*_EXEC_VALUES.split()})
    if len(rest) < 2 or launch.executed_in is not None:
        return None
    for key, equals, value in (text.partition("=") for name, text in options if name in ("-e", "--env")):
        env[key] = value if equals else env.get(key)
    folder = _last(options, "-w", "--workdir") or "."
    files = tuple(text for name, text in options if name == "--env-file")
    return (replace(launch, argv=tuple(rest[1:]), env=env, executed_in=rest[0], folder=folder, env_files=files),)


_NUMACTL = "-N -m -C -i -p -P -w --cpunodebind --membind --physcpubind --interleave --preferred --weighted-interleave"
_WRAPPERS: Mapping[str, Callable[[StartCommand, Read], Inside | None]] = {
    "sudo": _prefix("-u -g -h -p -C -T -r -t --user --group"),
    "nohup": _prefix(),
    "sshpass": _sshpass,
    "su": _su,
    "kubectl": _kubectl,
    "time": _prefix("-f -o"),
    "exec": _prefix("-a"),
    "command": _prefix(),
    "setsid": _prefix(),
    "unbuffer": _prefix(),
    "stdbuf": _prefix("-o -e -i"),
    "nice": _prefix("-n"),
    "ionice": _prefix("-c -n"),
    "timeout": _prefix("-k -s --signal --kill-after", 1, "say it as `recovery.max_duration`"),
    "numactl": _prefix(_NUMACTL, 0, "processes are not bound to cores or memory"),
    "srun": srun,
    "apptainer": apptainer,
    "singularity": apptainer,
    "enroot": enroot,
    "taskset": _prefix("", 1, "processes are not bound to cores"),
    "env": _env,
    "conda": _run,
    "mamba": _run,
    "micromamba": _run,
    "poetry": _run,
    "pipenv": _run,
    "uv": _run,
    "bash": _shell,
    "sh": _shell,
    "dash": _shell,
    "zsh": _shell,
    "ssh": _ssh,
    "docker": _docker,
    "podman": _docker,
    "nvidia-docker": _docker,
    "tmux": tmux,
    "screen": screen,
    **dict.fromkeys(("pdsh", "clush", "pssh", "parallel-ssh"), on_many_hosts),
    "mpirun": mpirun,
    "mpiexec": mpirun,
    "orterun": mpirun,
}
