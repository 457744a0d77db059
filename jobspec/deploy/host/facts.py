"""What a host is like, asked in one command: a bare host has a POSIX shell and little else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobctl.jobspec.deploy.host.host_job import Site
from jobctl.jobspec.deploy.host.scripts import FIND
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.transport.base import checked

# Prints KEY VALUE lines. $1-$3: as for FIND; $4: this check's token; then paths that should be there, `-`, names to resolve.
_ASK = (
    FIND
    + """\
token=$4 top=$(dirname -- "$(dirname -- "$work")"); shift 4
find "$top" -maxdepth 1 -name '.check-*' -mmin +60 -exec rm -f -- {} + 2>/dev/null
echo "now $(date +%s.%N)"
echo "work $work"
echo "own $own"
echo "uid $(id -u)"
echo "boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
echo "free $(df -Pk -- "$at" 2>/dev/null | awk 'NR == 2 && $2 > 0 { print $4 }')"
awk '/^MemTotal|^MemAvailable/ { print "memory-" $1, $2 }' /proc/meminfo
if (umask 077; mkdir -p -- "$top") 2>/dev/null && : > "$top/.check-$token" 2>/dev/null; then echo "writable yes"; fi
if command -v ip >/dev/null; then
  ip -o link | awk '{ name = $2; sub(/[@:].*/, "", name); for (i = 3; i < NF; i++) if ($i == "mtu") print "mtu", name, $(i + 1) }'
else
  for name in /sys/class/net/*; do echo "mtu $(basename -- "$name") $(cat -- "$name/mtu" 2>/dev/null)"; done
fi
ip -o addr 2>/dev/null | awk '{ sub("/.*", "", $4); print "address", $4, $2 }'
command -v flock >/dev/null && command -v timeout >/dev/null && echo "tools yes"
[ -d /dev/infiniband ] && echo "infiniband yes"
while [ $# -gt 0 ] && [ "$1" != - ]; do [ -e "$1" ] && echo "there $1"; shift; done
[ $# -eq 0 ] || shift
for name do echo "name $name $(getent ahosts "$name" 2>/dev/null | awk 'NR == 1 { print $1 }')"; done
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=index,uuid --format=csv,noheader 2>/dev/null | awk -F', ' '{ print "gpu", $1, $2 }'
  nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader 2>/dev/null | awk -F', ' '{ print "app", $1, $2, $3 }'
fi
:
"""
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a host said of itself. `skew` is how far its clock is ahead of this one (seconds), known to +-`blur`."""

    skew: float
    blur: float
    values: Mapping[str, str]
    mtu: Mapping[str, int]
    addresses: Mapping[str, str]  # address to interface
    there: frozenset[str]
    names: Mapping[str, str]
    busy: Mapping[int, str]  # index of a GPU to the process that uses it

    def number(self, key: str) -> int | None:
        """Return a value that is a number, None if the host could not tell."""
        return number_in(self.values.get(key))


def ask(site: Site, token: str, paths: Sequence[str], names: Sequence[str]) -> Facts:
    """Ask a host what it is like; leaves a file `.check-TOKEN` behind (see `visible`). Raises HostError.

    The connection has to be open: making it would take part in the clock's blur. Files that an earlier check had no chance to remove (it was killed, or cut off) go with it.
    """
    began = time.time()
    out = checked(
        site.transport, ["sh", "-c", _ASK, "sh", *site.place, token, *paths, "-", *names], "look around"
    ).decode("utf-8", "replace")
    ended = time.time()
    return _parse(out, began, ended)


def _parse(text: str, began: float, ended: float) -> Facts:
    values: dict[str, str] = {}
    mtu: dict[str, int] = {}
    addresses: dict[str, str] = {}
    there: set[str] = set()
    names: dict[str, str] = {}
    gpus: dict[str, int] = {}
    busy: dict[int, str] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(" ")
        first, _, second = rest.partition(" ")
        if key == "mtu" and (size := number_in(second)) is not None:
            mtu[first] = size
        elif key == "address":
            addresses[first] = second
        elif key == "there":
            there.add(rest)
        elif key == "name":
            names[first] = second
        elif key == "gpu" and (index := number_in(first)) is not None:
            gpus[second] = index
        elif key == "app" and first in gpus:
            busy[gpus[first]] = second
        else:
            values[key] = rest
    now = _time(values.get("now", ""), began)
    # The host told its time at the beginning of the command, right after it was sent.
    skew = now - began if now < began else now - ended if now > ended else 0.0
    return Facts(skew, ended - began, values, mtu, addresses, frozenset(there), names, busy)


def _time(text: str, unknown: float) -> float:
    """Return what `date +%s.%N` printed; some do not know %N, and print it as it is."""
    seconds, _, rest = text.partition(".")
    whole, part = number_in(seconds), number_in(rest)
    return unknown if whole is None or part is None else whole + part / 10 ** len(rest)


def visible(site: Site, tokens: Sequence[str]) -> frozenset[str]:
    """Return whose tokens lie where this host's work directory is: more than its own if it is shared."""
    top = str(site.work.parent.parent)
    script = 'cd -- "$1" || exit 0; shift; for t do [ -e ".check-$t" ] && echo "$t"; done; :'
    out = checked(site.transport, ["sh", "-c", script, "sh", top, *tokens], "look for shared storage")
    return frozenset(out.decode("utf-8", "replace").split())


def forget(site: Site, token: str) -> None:
    """Remove what `ask` left behind."""
    top = str(site.work.parent.parent)
    script = 'rm -f -- "$1/.check-$2"; rmdir -- "$1" 2>/dev/null; :'
    site.transport.run(["sh", "-c", script, "sh", top, token])


def mark(site: Site, directory: str, token: str) -> None:
    """Leave a token in a directory that should be shared; makes the directory. Raises HostError."""
    script = (
        'mkdir -p -- "$1" && : > "$1/.jobctl-check-$2" || exit\n'
        'find "$1" -maxdepth 1 -name ".jobctl-check-*" -mmin +60 -exec rm -f -- {} + 2>/dev/null; :'
    )
    checked(site.transport, ["sh", "-c", script, "sh", directory, token], f"write into {directory}")


def marks(site: Site, directory: str, tokens: Sequence[str]) -> frozenset[str]:
    """Return which of the tokens this host sees in the directory; removes its own (the first)."""
    script = 'cd -- "$1" || exit 0; shift; for t do [ -e ".jobctl-check-$t" ] && echo "$t"; done; :'
    out = checked(site.transport, ["sh", "-c", script, "sh", directory, *tokens], f"read {directory}")
    return frozenset(out.decode("utf-8", "replace").split())


def unmark(site: Site, directory: str, token: str) -> None:
    """Remove the token of this host."""
    site.transport.run(["rm", "-f", "--", f"{directory}/.jobctl-check-{token}"])
