"""`mpirun` of Open MPI, MPICH and Intel MPI: how many processes it starts, where, and with which variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.draft import HostLine
from jobctl.jobspec.importers.shell.expand import Read, settled_or_empty
from jobctl.jobspec.importers.start_command import Inside, StartCommand, in_folder

_HOSTS = ("-H", "--host", "-host", "--hosts", "-hosts")
_FILES = ("--hostfile", "-hostfile", "-machinefile", "--machinefile", "-f")
_PROCESSES = ("-np", "-n", "-c", "--np", "--n")
_PER_NODE = ("-npernode", "--npernode", "-ppn", "--ppn", "-N")
_FOLDERS = ("-wdir", "--wdir", "-wd")
_PAIRS = ("-genv", "-env", "--genv", "--env")  # NAME VALUE, or NAME=VALUE
_NAMES = ("-genvlist", "-envlist", "--genvlist", "--envlist")
_WORD = frozenset((*_HOSTS, *_FILES, *_PROCESSES, *_PER_NODE, *_FOLDERS, *_NAMES)) | {
    *("-x", "--bind-to", "-bind-to", "--map-by", "-map-by", "--rank-by", "--output-filename", "-d", "--prefix"),
    *("--timeout", "-iface", "--report-bindings-to", "-launcher", "--launcher"),
}
_TWO = frozenset(("-mca", "--mca", "-gmca", "--gmca", "--prtemca", "--pmixmca"))


def mpirun(launch: StartCommand, read: Read) -> Inside | None:
    """Return what `mpirun` starts: one command, also where `:` joins several of the same."""
    parts = [_part(launch, words, read) for words in _joined(launch.argv[1:])]
    launches = [part for part in parts if part is not None]
    if not launches:
        return None
    first, *rest = launches
    for one in rest:
        if one.argv == first.argv:
            first = _together(first, one)
        else:
            first = first.noting(": … " + " ".join(one.argv), "all processes of a job start with the same command")
    return (first,)


def _joined(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the parts of `-np 4 a : -np 4 b`."""
    part: list[str] = []
    for word in words:
        if word == ":":
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _together(first: StartCommand, one: StartCommand) -> StartCommand:
    named = {host.name for host in first.hosts}
    known = first.processes is not None and one.processes is not None
    return replace(
        first,
        hosts=(*first.hosts, *(host for host in one.hosts if host.name not in named)),
        remote=first.remote or one.remote,
        processes=(first.processes or 0) + (one.processes or 0) if known else None,
    )


def _part(launch: StartCommand, words: Sequence[str], read: Read) -> StartCommand | None:
    env = dict(launch.env)
    given, rest = _options(words)
    if not rest:
        return None
    for name, value in given:
        if name == "-x" or name in _PAIRS:
            key, equals, text = value.partition("=")
            env[key] = text if equals else env.get(key)
        elif name in _NAMES:
            env |= {key: env.get(key) for key in values.listed(value)}
    said = dict(given)
    inner = replace(launch, argv=tuple(rest), env=env)
    folder = next((said[name] for name in _FOLDERS if name in said), None)
    return _seats(in_folder(inner, folder), said, read)


def _options(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options at the beginning, those of variables as NAME=VALUE, and the words after them."""
    left = list(words)
    found: list[tuple[str, str]] = []
    while left and left[0].startswith("-"):
        name, equals, value = left.pop(0).partition("=")
        if name in _TWO:
            value = " ".join(left[:2])
            del left[:2]
        elif name in _PAIRS:
            count = 1 if "=" in "".join(left[:1]) else 2
            value = "=".join(left[:count])
            del left[:count]
        elif not equals and name in _WORD and left:
            value = left.pop(0)
        found.append((name, value))
    return found, left


def _seats(launch: StartCommand, said: dict[str, str], read: Read) -> StartCommand:
    def first(names: Sequence[str]) -> str:
        return next((said[name] for name in names if name in said), "")

    hosts = _hosts(first(_HOSTS))
    file = first(_FILES)
    if file and not hosts:
        hosts = hostfile(read(settled_or_empty(file)) or "")
        launch = launch if hosts else launch.noting(f"--hostfile {file}", "there is no such file here that names hosts")
    processes, per_node = first(_PROCESSES), first(_PER_NODE)
    return replace(
        launch,
        hosts=hosts,
        remote=bool(hosts),
        processes=int(processes) if processes.isdigit() else None,
        per_node=int(per_node) if per_node.isdigit() else None,
    )


def _hosts(text: str) -> tuple[HostLine, ...]:
    found: dict[str, HostLine] = {}
    for part in values.listed(text):
        name, _, slots = part.partition(":")
        if values.host_name(name) and not values.loopback(name):
            found[name] = HostLine(name, slots=int(slots) if slots.isdigit() else None)
    return tuple(found.values())


def hostfile(text: str) -> tuple[HostLine, ...]:
    """Return the hosts of a host file, as MPI and DeepSpeed read it: `name slots=8`."""
    found: dict[str, HostLine] = {}
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words or not values.host_name(words[0]):
            continue
        slots = re.search(r"\bslots\s*=\s*(\d{1,4})\b", line)
        found.setdefault(words[0], HostLine(words[0], slots=int(slots[1]) if slots else None))
    return tuple(found.values())
