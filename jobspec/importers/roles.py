"""Processes that a script starts one by one, each told its role by variables: which job they are together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.command import StartCommand
from jobctl.jobspec.importers.common import runs
from jobctl.jobspec.importers.devices import Seats
from jobctl.jobspec.importers.draft import Draft
from jobctl.jobspec.importers.launchers import msrun, paddle
from jobctl.jobspec.importers.launchers.python import python
from jobctl.jobspec.importers.shell.expand import Read

# Variables by which processes of a framework know each other.
_VARIABLES = (
    ("mindspore", re.compile(r"MS_(ROLE|WORKER_NUM|SCHED_HOST|SCHED_PORT|NODE_ID)")),
    ("paddle", re.compile(r"PADDLE_\w+|TRAINING_ROLE|FLAGS_selected_\w+")),
    ("torch", re.compile(r"MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|LOCAL_RANK")),
)
_NAMES = (
    ("paddle", re.compile(r"paddle")),
    ("mindspore", re.compile(r"mindspore")),
    ("torch", re.compile(r"torch")),
)


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


_IMPORT = re.compile(r"^\s*(?:import|from)\s+(paddle|mindspore|torch)\b", re.MULTILINE)


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


def find(launches: Sequence[StartCommand], name: str, env: dict[str, str], draft: Draft) -> Seats:
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
        return msrun.find_variables(env, draft, _local(launches, mpi) if mpi else len(workers) or None, mpi)
    if name == "paddle":
        if first.processes and not any(map(re.compile("PADDLE_|TRAINING_ROLE").match, env)):
            return _by_mpi(launches, first.processes, name, draft)
        hosts = {host.name for launch in launches for host in launch.hosts}
        others = [one.env for one in launches[1:] if not serves(one)]
        return paddle.find_variables(env, draft, others[: (len(others) + 1) // max(1, len(hosts)) - 1])
    return _torch(launches, env, draft)


def _by_mpi(launches: Sequence[StartCommand], total: int, name: str, draft: Draft) -> Seats:
    local = _local(launches, total)
    nodes = max(1, total // local)
    draft.set("framework", name)
    draft.set("nodes", (nodes, nodes))
    return Seats(count=local)


def _what_runs(launch: StartCommand, draft: Draft) -> None:
    told = python(launch.argv)
    if told is not None and told.kind != "code":
        runs(draft, told.kind, told.what, told.args)
        return
    runs(draft, "command", launch.argv[0], launch.argv[1:])
    if launch.container is not None and len(launch.argv) == 1 and launch.head in ("bash", "sh", "zsh"):
        draft.set("per", "node")
        draft.check(f"`{launch.argv[0]}` trains nothing: put `script: train.py` in place of `command` and `per`")


def _torch(launches: Sequence[StartCommand], env: dict[str, str], draft: Draft) -> Seats:
    draft.set("framework", "torch")
    total = _number(launches[0].env, "WORLD_SIZE") or launches[0].processes or len(launches)
    local = _number(launches[0].env, "LOCAL_WORLD_SIZE") or launches[0].per_node or _local(launches, total)
    nodes = max(1, total // local)
    draft.set("nodes", (nodes, nodes))
    host, number = env.pop("MASTER_ADDR", None), env.pop("MASTER_PORT", None)
    if host is not None and (name := draft.read(host, str, f"MASTER_ADDR={host}")):
        draft.name_hosts(values.host_lines([name]))
    if number is not None and (port := draft.read(number, values.port, f"MASTER_PORT={number}")):
        draft.set("rendezvous.port", port)
    for key in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"):
        env.pop(key, None)
    return Seats(count=local)


def _local(launches: Sequence[StartCommand], total: int) -> int:
    """Return how many processes there are on each host."""
    if launches[0].per_node:
        return min(total, launches[0].per_node)
    hosts = {host.name for launch in launches for host in launch.hosts}
    processes = max(len(launches), launches[0].processes or 0)
    return max(1, min(total, processes // max(1, len(hosts))))


def _number(env: Mapping[str, str | None], name: str) -> int | None:
    text = env.get(name) or ""
    return int(text) if re.fullmatch(r"[1-9]\d{0,5}", text) else None
