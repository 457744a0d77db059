"""Programs that run one command on many hosts by SSH: `pdsh`, `clush`, `pssh`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.draft import HostLine
from jobctl.jobspec.importers.escaping import is_constant
from jobctl.jobspec.importers.option_words import leading
from jobctl.jobspec.importers.shell.expand import Read, settled_or_empty
from jobctl.jobspec.importers.start_command import Inside, StartCommand
from jobctl.jobspec.spec.hosts import expand

# Options that take a word, of all of these programs or of each.
_TAKES = {
    "pdsh": "-w -x -R -l -t -u -f -g -X -n",
    "clush": "-w -x -g -X -l -t -u -f -m -o --hostfile --machinefile --options --fanout --user --group --mode",
    "pssh": "-h --hosts -H --host -l --user -p --par -t --timeout -o --outdir -e --errdir -x --extra-args -X -O --option",
}
_TAKES["parallel-ssh"] = _TAKES["pssh"]
_LISTS, _FILES = ("-w", "-H", "--host"), ("-h", "--hosts", "--hostfile", "--machinefile")


def on_many_hosts(launch: StartCommand, read: Read) -> Inside | None:
    """Return the command as each of the hosts runs it."""
    options, words = leading(launch.argv[1:], {*_TAKES[launch.head].split()})
    if not words:
        return None
    named = [name for option, value in options for name in _named(option, value, read)]
    user = next((value for option, value in options if option in ("-l", "--user")), None)
    excludes = "-x" if launch.head in ("pdsh", "clush") else ""
    left_out = {name for option, value in options if option == excludes for name in _listed(value)}
    hosts = [one for name in dict.fromkeys(named) if (one := _host(name, user)) and one.name not in left_out]
    inner = replace(launch, env={}, remote=True)
    if not hosts:
        inner = inner.noting(launch.head, "the hosts are not known here: add them to hosts.txt")
        return (replace(inner, argv=("sh", "-c", " ".join(words))),)
    return tuple(_on(inner, host, place, words) for place, host in enumerate(hosts))


def _on(launch: StartCommand, host: HostLine, place: int, words: list[str]) -> StartCommand:
    text = " ".join(words).replace("%h", host.name).replace("%n", str(place))
    hosts = () if values.loopback(host.name) else (*launch.hosts, host)
    return replace(launch, argv=("sh", "-c", text), hosts=hosts)


def _named(option: str, value: str, read: Read) -> Iterator[str]:
    if option in _FILES or (option in _LISTS and value.startswith("^")):
        lines = (read(settled_or_empty(value.removeprefix("^"))) or "").splitlines()
        for line in lines:
            yield from _listed("".join(line.split("#")[0].split()[:1]))
    elif option in _LISTS:
        yield from _listed(value)


def _listed(text: str) -> Iterator[str]:
    """Yield the names in `gpu[01-04],a b`."""
    for part in re.split(r"[,\s](?![^\[]*\])", text):
        user, at, pattern = part.rpartition("@")
        try:
            yield from (f"{user}{at}{name}" for name in expand(pattern)) if pattern and is_constant(part) else ()
        except ValueError:
            yield part


def _host(text: str, user: str | None) -> HostLine | None:
    own, at, name = text.rpartition("@")
    name, _, port = name.partition(":")
    return (
        HostLine(name, own if at else user, int(port) if port.isdigit() else None) if values.host_name(name) else None
    )
