"""What a host is like, asked in one command: a bare host has a POSIX shell and little else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.transport.base import checked
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.hosts import canonical


@dataclass(frozen=True, slots=True)
class Facts:
    """What a host said of itself. `skew` is how far its clock is ahead of this one at least, in seconds."""

    skew: float
    values: Mapping[str, str]
    mtu: Mapping[str, int]
    addresses: Mapping[str, str]  # address to interface
    there: frozenset[str]
    names: Mapping[str, str]
    busy: Mapping[int, str]  # index of a GPU to the process that uses it

    def number(self, key: str) -> int | None:
        """Return a value that is a number, None if the host could not tell."""
        return number_in(self.values.get(key))

    def interface_at(self, address: str) -> str | None:
        """Return the interface that has an address, however that is spelled; None if none has it."""
        return self.addresses.get(canonical(address))


def ask(host_job: HostJob, token: str, paths: Sequence[str], names: Sequence[str]) -> Facts:
    """Ask a host what it is like; leaves a file `.check-TOKEN` behind (see `visible`). Raises HostError.

    The connection has to be open: the time to make it would hide how far the clock is ahead. Files that an
    earlier check had no chance to remove (it was killed, or cut off) go with it.
    """
    began = time.time()
    out = checked(
        host_job.transport, SCRIPTS.argv("facts", *host_job.place_arguments, token, *paths, "-", *names), "look around"
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
        elif key == "compute-apps" and first in gpus:
            busy[gpus[first]] = second
        else:
            values[key] = rest
    now = _time(values.get("now", ""), began)
    # The host told its time at the beginning of the command, right after it was sent.
    skew = now - began if now < began else now - ended if now > ended else 0.0
    return Facts(skew, values, mtu, addresses, frozenset(there), names, busy)


def _time(text: str, unknown: float) -> float:
    """Return what `date +%s.%N` printed; some do not know %N, and print it as it is."""
    seconds, _, rest = text.partition(".")
    whole, part = number_in(seconds), number_in(rest)
    return unknown if whole is None or part is None else whole + part / 10 ** len(rest)


def visible(host_job: HostJob, tokens: Sequence[str]) -> frozenset[str]:
    """Return whose tokens lie where this host's work directory is: more than its own if it is shared."""
    top = str(host_job.work.parent.parent)
    out = checked(host_job.transport, SCRIPTS.argv("visible", top, *tokens), "look for shared storage")
    return frozenset(out.decode("utf-8", "replace").split())


def forget(host_job: HostJob, token: str) -> None:
    """Remove what `ask` left behind."""
    top = str(host_job.work.parent.parent)
    host_job.transport.run(SCRIPTS.argv("forget", top, token))


def mark(host_job: HostJob, directory: str, token: str) -> None:
    """Leave a token in a directory that should be shared; makes the directory. Raises HostError."""
    checked(host_job.transport, SCRIPTS.argv("mark", directory, token), f"write into {directory}")


def marks(host_job: HostJob, directory: str, tokens: Sequence[str]) -> frozenset[str]:
    """Return which of the tokens this host sees in the directory; removes its own (the first)."""
    out = checked(host_job.transport, SCRIPTS.argv("marks", directory, *tokens), f"read {directory}")
    return frozenset(out.decode("utf-8", "replace").split())


def unmark(host_job: HostJob, directory: str, token: str) -> None:
    """Remove the token of this host."""
    host_job.transport.run(["rm", "-f", "--", f"{directory}/.jobctl-check-{token}"])
