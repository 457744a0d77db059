"""A sum over all hosts whose result is known: which of them added wrongly. Pure."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from jobctl.jobspec.deploy.model.untrusted import Json

FACTOR, WORDS, MODULO = 2654435761, 1024, (1 << 64) - 1  # as in network_probe.py


@cache
def digest(hosts: int) -> str:
    """Return the digest of the sum of the words of so many hosts."""
    total = hosts * (hosts + 1) // 2
    words = [(FACTOR * (k + 1) * total) & MODULO for k in range(WORDS)]
    return hashlib.sha256(struct.pack(f"<{WORDS}Q", *words)).hexdigest()


def wrong_sums(hosts: Sequence[str], said: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield each host that made the sum wrong, and how; `hosts` are in the order in which they added.

    A host is to blame for what became wrong at it: what came to it was as the host before it had sent it.
    """
    before = digest(0)
    for number, host in enumerate(hosts):
        one = said[host]
        if one["came"] != before:
            yield host, f"received other numbers than {hosts[number - 1]} sent it"
        elif before == digest(number) and one["added"] != digest(number + 1):
            yield host, "added its numbers to those of other hosts, and the sum is wrong"
        before = one["added"]
    for number, host in enumerate(hosts):
        if said[host]["sum"] != before:
            yield host, f"received another sum from {hosts[number - 1]} than all others"
