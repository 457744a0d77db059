"""Processes that a script starts one by one, each told its role by variables: which job they are together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.common import runs
from jobctl.jobspec.importers.devices import VISIBLE, NodeDevices
from jobctl.jobspec.importers.draft import Draft, HostLine
from jobctl.jobspec.importers.launchers import msrun, paddle
from jobctl.jobspec.importers.launchers.python import python
from jobctl.jobspec.importers.shell.expand import Read
from jobctl.jobspec.importers.start_command import StartCommand
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.frameworks import FRAMEWORKS

_HERE = HostLine("")  # what a script starts without `ssh` runs on one more host
_BACKWARDS = tuple(FRAMEWORKS.items())[::-1]  # the most general ones last
_VARIABLES = tuple((name, re.compile(traits.told)) for name, traits in _BACKWARDS)
_NAMES = tuple((name, re.compile(traits.named)) for name, traits in _BACKWARDS)


def framework(launch: StartCommand) -> str | None:
    """Return the framework that the variables, the image or the code of a command name, None if nothing does."""
    for name, pattern in _VARIABLES:
        if any(pattern.fullmatch(variable) for variable in launch.env):
            return name
    told = python(launch.argv)
    code = " ".join(re.findall(r"\b(?:import|from)\s+(\w+)", told.what)) if told and told.kind == "code" else ""
    image = launch.container.image if launch.container else ""
    return next((name for name, pattern in _NAMES if pattern.search(f"{image} {code}")), None)


def by_imports(launch: StartCommand, read: Read) -> str | None:
    """Return the framework that a script imports which mpirun starts: on its own any script could be anything."""
    told = python(launch.argv)
    if launch.processes is None or told is None or told.kind != "script":
        return None
    imports = " ".join(_IMPORT.findall(read(told.what) or ""))
    return next((name for name, pattern in _NAMES if pattern.search(imports)), None)


_IMPORT = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)


def by_variables(env: Iterable[str]) -> str | None:
    """Return the framework that variables alone name."""
    return next((name for name, pattern in _VARIABLES if any(map(pattern.fullmatch, env))), None)


def has_role(launch: StartCommand) -> bool:
    """Say whether a process is told its place by variables."""
    return by_variables(launch.env) is not None


def serves(launch: StartCommand) -> bool:
    """Say whether a process is a server or a scheduler, which trains nothing."""
    told = {launch.env.get(name) for name in ("MS_ROLE", "TRAINING_ROLE", "PADDLE_TRAINING_ROLE", "PADDLE_ROLE")}
    return bool(told & {"MS_SCHED", "MS_PSERVER", "PSERVER"})


_RANKS = ("RANK", "JAX_PROCESS_ID", "PADDLE_TRAINER_ID", "MS_NODE_ID", "RANK_ID", "NODE_RANK")


def by_rank(hosts: tuple[HostLine, ...], processes: Sequence[StartCommand]) -> tuple[HostLine, ...]:
    """Return hosts in the order of the first ranks on them, as they are where a rank is not known.

    Processes that a script starts without `ssh` are on the host where the others meet them.
    """
    least: dict[str, int] = {}
    for one in processes:
        rank = next((one.env[name] or "" for name in _RANKS if name in one.env), "")
        if not re.fullmatch(r"\d{1,6}", rank):
            return hosts
        for host in one.hosts or (_HERE,):
            least[host.name] = min(int(rank), least.get(host.name, int(rank)))
    last = max(least.values(), default=0) + 1
    others = least.get(_HERE.name, last if 0 in least.values() else -1)
    return tuple(sorted(hosts, key=lambda host: least.get(host.name, others)))


# What scripts run in a container before they train: to fetch its image, to see that it works, or for files.
_BEFORE = frozenset(
    ("true", "nvidia-smi", "npu-smi", "rocm-smi", "hostname", "ls", "echo", "cat", "env", "sleep", "date", "pwd", "df")
    + ("mkdir", "cp", "mv", "rm", "ln", "chmod", "touch", "tar", "unzip", "rsync", "wget", "curl", "git", "ulimit")
)


def likelihood(launch: StartCommand) -> tuple[bool, int]:
    """Return what speaks for a process to be the one that trains; of equal ones it is the first."""
    told = python(launch.argv)
    trains = launch.head not in _BEFORE if told is None else told.kind != "code"
    return trains, launch.processes or sum(host.slots or 1 for host in launch.hosts) or 1


def find(launches: Sequence[StartCommand], name: str, env: dict[str, str], draft: Draft) -> NodeDevices:
    """Put into the draft what the processes are together; `env` is what the first of them is given."""
    first = launches[0]
    _what_runs(first, draft)
    if name == "mindspore":
        workers = [one for one in launches if one.env.get("MS_ROLE") == "MS_WORKER"]
        if not workers and "MS_ROLE" in first.env:
            draft.check(
                "the script starts the scheduler only: jobctl starts both it and the workers, again where one fails"
            )
        mpi = first.processes if "MS_WORKER_NUM" not in env else None
        local = _local(workers or launches, mpi or len(workers)) if mpi or workers else None
        return msrun.find_variables(env, draft, local, mpi)
    if name == "paddle":
        if first.processes and not any(map(re.compile("PADDLE_|TRAINING_ROLE").match, env)):
            return _by_mpi(launches, first.processes, name, draft)
        hosts = {host.name for launch in launches for host in launch.hosts}
        others = [one.env for one in launches[1:] if not serves(one)]
        return paddle.find_variables(env, draft, others[: (len(others) + 1) // max(1, len(hosts)) - 1])
    return _alike(launches, env, draft, name, _ALIKE[name])


def _by_mpi(launches: Sequence[StartCommand], total: int, name: str, draft: Draft) -> NodeDevices:
    local = _local(launches, total)
    nodes = max(1, total // local)
    draft.set("framework", name)
    draft.set("nodes", (nodes, nodes))
    return NodeDevices(count=local)


def _what_runs(launch: StartCommand, draft: Draft) -> None:
    told = python(launch.argv)
    if told is not None and told.kind != "code":
        runs(draft, told.kind, told.what, told.args)
        return
    runs(draft, "command", launch.argv[0], launch.argv[1:])
    if launch.container is not None and len(launch.argv) == 1 and launch.head in ("bash", "sh", "zsh"):
        draft.set("per", "node")
        draft.check(f"`{launch.argv[0]}` trains nothing: put `script: train.py` in place of `command` and `per`")


@dataclass(frozen=True, slots=True)
class _Told:
    """The variables by which processes that are all alike know how many they are, where they meet, and their own place.

    `host` may hold the port, too; `platform` names the kinds of devices, as `kinds` translates them. Without the variable
    `device` a process takes all devices that it sees (empty: it takes one).
    """

    total: str
    local: str
    host: str
    port: str
    own: tuple[str, ...]
    device: str = ""
    platform: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)


_ALIKE = {
    "torch": _Told("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", ("RANK", "LOCAL_RANK", "NODE_RANK")),
    "jax": _Told(
        "JAX_NUM_PROCESSES",
        "LOCAL_WORLD_SIZE",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_COORDINATOR_PORT",
        (
            *("JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS", "JAX_COORDINATOR_BIND_ADDRESS"),
            *("WORLD_SIZE", "RANK", "LOCAL_RANK"),
        ),
        device="JAX_LOCAL_DEVICE_IDS",
        platform="JAX_PLATFORMS",
        kinds={"cpu": "cpu", "cuda": "gpu", "gpu": "gpu", "cuda,cpu": "gpu"},
    ),
}


def _alike(launches: Sequence[StartCommand], env: dict[str, str], draft: Draft, name: str, told: _Told) -> NodeDevices:
    draft.set("framework", name)
    first = launches[0]
    total = _number(first.env, told.total) or first.processes or len(launches)
    host, port = _meeting(env, told)
    alone = host is not None and values.loopback(host)  # at such an address nobody from elsewhere is met
    local = _number(first.env, told.local) or first.per_node or (total if alone else _local(launches, total))
    nodes = max(1, total // local)
    draft.set("nodes", (nodes, nodes))
    if host is not None and (read := draft.read(host, str, f"{told.host}={host}")):
        draft.name_hosts(values.host_lines([read]))
    if port is not None and (number := draft.read(port, values.port, f"{told.port}={port}")):
        draft.set("rendezvous.port", number)
    for key in (told.total, told.local, *told.own):
        env.pop(key, None)
    kind = told.kinds.get(env.get(told.platform, ""))
    if kind is not None:
        del env[told.platform]  # jobctl sets it by the kind of devices
    if told.device and told.device not in first.env and local == 1 and kind != "cpu":
        draft.check(
            "jobctl starts a process on each device; one for all devices of a host: `command: [python3, …]` and `per: node`"
        )
        return NodeDevices(kind=kind)
    visible = next((key for key in VISIBLE if re.fullmatch(r"\d{1,4}", env.get(key, ""))), None)
    if visible is not None and local > 1:  # a process is told its own device, not those of the others
        kind = kind or VISIBLE[visible]
        for key in VISIBLE:
            env.pop(key, None)
    return NodeDevices(kind=kind, count=local)


def _meeting(env: dict[str, str], told: _Told) -> tuple[str | None, str | None]:
    host, port = env.pop(told.host, None), env.pop(told.port, None)
    if host is not None and re.fullmatch(r".+:\d+", host):
        host, _, port = host.rpartition(":")
    return host, port


def _local(launches: Sequence[StartCommand], total: int) -> int:
    """Return how many processes there are on each host."""
    if launches[0].per_node:
        return min(total, launches[0].per_node)
    places = Counter(host.name for launch in launches for host in launch.hosts or (_HERE,))
    each = max((launches[0].processes or 0) // len(places), *places.values())
    return max(1, min(total, each))


def _number(env: Mapping[str, str | None], name: str) -> int | None:
    text = env.get(name) or ""
    return int(text) if re.fullmatch(r"[1-9]\d{0,5}", text) else None
