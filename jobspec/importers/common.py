"""What is alike for all launchers: variables, secrets, the folder of the code, hosts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from jobctl.jobspec.importers.devices import NodeDevices, draft_devices
from jobctl.jobspec.importers.draft import Draft, Found, HostLine
from jobctl.jobspec.importers.escaping import is_constant
from jobctl.jobspec.importers.launchers import docker
from jobctl.jobspec.importers.launchers.python import interpreter
from jobctl.jobspec.importers.names import MACHINE, is_secret, looks_secret
from jobctl.jobspec.importers.start_command import StartCommand

# Variables.

# The launcher tells its processes these itself.
_TOLD = frozenset(
    [
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
    ]
)
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")


def variables(draft: Draft, env: Mapping[str, str | None]) -> None:
    """Put variables into `env`, `secrets` and `network.interface`; those that jobctl tells are noted."""
    rest = dict(env)
    told = sorted(name for name in rest if name in _TOLD)
    if told:
        draft.drop(", ".join(told), "jobctl tells each process")
    _interface(draft, rest)
    plain: dict[str, str | None] = {}
    for name, value in rest.items():
        if name in _TOLD:
            continue
        if is_secret(name, value or ""):
            _secret(draft, name, value)
        elif name in MACHINE:
            draft.drop(name if value is None else f"{name}={value}", "the image has its own")
        else:
            plain[name] = value
    if plain:
        draft.set("env", plain)


def _secret(draft: Draft, name: str, value: str | None) -> None:
    draft.add("secrets", name)
    if value is not None and value != f"${{{name}}}":
        draft.check(f"{name} looks like a secret: its value is not written here; export it before `jobctl up`")


def _interface(draft: Draft, env: dict[str, str | None]) -> None:
    """One interface for all becomes `network.interface`; anything else stays what it is."""
    given = {name: env[name] for name in _INTERFACES if name in env}
    names = set(given.values())
    name = next(iter(names), None)
    if len(names) == 1 and name is not None and re.fullmatch(r"=?[A-Za-z0-9_.-]+", name):
        draft.set("network.interface", name.removeprefix("="))
        for key in given:
            del env[key]


# What runs, and where.


def runs(draft: Draft, kind: str, what: str, args: tuple[str, ...]) -> None:
    """Say what runs: `script` and `module` with arguments, or a `command`."""
    if kind == "command":
        draft.set("command", (what, *args))
    else:
        draft.set(kind, what)
        if args:
            draft.set("args", args)
    suspects = [arg for arg in args if looks_secret(arg)]
    if suspects:
        name = suspects[0].split("=")[0] if suspects[0].startswith("-") else "one of them"
        draft.check(f"`{name}`: arguments are written down as they are; a secret belongs into `secrets`")


def place(draft: Draft, launch: StartCommand) -> None:
    """Say where the code is: beside the spec, unless it is in the image."""
    if launch.container is None:
        _place_outside(draft, launch)
    else:
        _place_inside(draft, launch)
    python = interpreter(launch.argv)
    if python is not None and (launch.container is not None or not python.startswith("/")):
        draft.set("container.python", python)


def _place_outside(draft: Draft, launch: StartCommand) -> None:
    script = draft.get("script")
    if isinstance(script, str) and script.startswith("/"):
        return
    folder = launch.folder
    if launch.remote or folder.startswith("~"):
        if folder != ".":
            draft.check(f"the command runs in `{folder}`: that code has to be beside this file")
        folder = "."
    draft.set("code", folder, "sent to every host; the script runs in it")


def _place_inside(draft: Draft, launch: StartCommand) -> None:
    assert launch.container is not None
    work = launch.folder if launch.folder.startswith("/") else launch.container.option("--workdir")
    if work is not None and not launch.folder.startswith("/") and launch.folder != ".":
        work = posixpath.join(work, launch.folder)
    script, code = draft.get("script"), draft.get("code")
    target = code["target"] if isinstance(code, dict) else "/workspace" if code else None
    if work is None and launch.folder != ".":
        _place_below(draft, launch.folder)
    if work is None or (target is not None and work.rstrip("/") == target.rstrip("/")):
        return
    if target is not None and work.startswith(f"{target.rstrip('/')}/") and isinstance(script, str):
        if not script.startswith("/"):
            draft.set("script", posixpath.join(posixpath.relpath(work, target), script))
        draft.check(f"the command runs in `{work}`, the job in `{target}`")
    else:
        if isinstance(script, str) and not script.startswith("/") and is_constant(work):
            draft.set("script", posixpath.join(work, script))
        draft.drop(f"working directory {work}", "the job runs in the folder of `code`, or the image's own")


def _place_below(draft: Draft, folder: str) -> None:
    """Name the script below `folder`, to which its command changes: nobody knows the image's own folder that this is in."""
    script = draft.get("script")
    if isinstance(script, str) and not script.startswith("/") and not folder.startswith("~"):
        draft.set("script", posixpath.join(folder, script))
    draft.check(f"the command runs in `{folder}`, the job in the folder of `code`, or the image's own")


def finish(
    draft: Draft, devices: NodeDevices, env: Mapping[str, str | None], launch: StartCommand, directory: str
) -> Found:
    """Return the job: what all launchers have in common is added to what one of them said."""
    rest = dict(env)
    if launch.container is not None:
        docker.apply(launch.container, draft, directory)
        if volumes := draft.get("volumes"):
            draft.set("volumes", tuple(sorted(volumes, key=_depth)))
    for file in launch.env_files:
        draft.add("env_file", file)
    draft_devices(draft, devices, rest, launch)
    variables(draft, rest)
    place(draft, launch)
    # Those that SSH is told first: they come with user and port.
    draft.hosts = {**{host.name: host for host in launch.hosts}, **_others(draft, launch)}
    args = {*(draft.get("args") or ()), *(draft.get("command") or ())}
    if patterns := [f"`{word}`" for word in dict.fromkeys(launch.patterns) if word in args]:
        draft.check(
            f"{', '.join(patterns)}: the script's shell makes paths of such words, and jobctl passes them as they are"
        )
    if launch.logged:
        draft.drop("the file that output goes to", "logs are kept by jobctl: `jobctl logs`")
    if launch.maybe:
        draft.check(f"line {launch.line}: the command is in `{launch.maybe}`: it is taken as if it ran, once")
    return as_found(draft, launch.notes)


def _depth(volume: str | Mapping[str, str]) -> int:
    """How deep a mount is: docker mounts outer ones first, whatever their order."""
    target = volume.split(":")[1] if isinstance(volume, str) else volume["target"]
    return len(posixpath.normpath(target).split("/"))


def _others(draft: Draft, launch: StartCommand) -> dict[str, HostLine]:
    reached = {host.name for host in launch.hosts}
    return {name: host for name, host in draft.hosts.items() if name not in reached}


def as_found(draft: Draft, notes: tuple[str, ...] = ()) -> Found:
    """Return a draft as it is."""
    hosts = tuple(draft.hosts.values())
    return Found(
        fields=draft.fields,
        remarks=draft.remarks,
        notes=tuple(dict.fromkeys((*notes, *draft.notes))),
        hosts=hosts,
        missing=missing_hosts(draft.get("nodes") or (1, 1), hosts),
        rank=draft.rank,
    )


def missing_hosts(nodes: tuple[int, int], hosts: Sequence[HostLine]) -> int:
    """Return how many hosts have to be added to those that are named; a range begins with the least of its nodes."""
    return max(0, nodes[0] - sum(host.nodes for host in hosts if host.takes_nodes)) if hosts else 0
