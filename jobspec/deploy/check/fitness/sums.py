"""Sums over all hosts whose results are known: which of the hosts added wrongly. Pure."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from jobctl.jobspec.deploy.check.fitness.links import Pair, disjoint_groups, pairings
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


# The sum by the framework's own collectives. A float of 32 bits holds each of its numbers exactly.

PATTERN = tuple(float(number % 7 + 1) for number in range(1 << 12))
CYCLE = 13
Group: TypeAlias = tuple[str, ...]
Wrong: TypeAlias = Mapping[Group, Sequence[str]]  # of each group that could add up, the hosts whose sums are wrong


def factor(rank: int) -> int:
    """Return by what a rank multiplies PATTERN: its part of the sum."""
    return rank % CYCLE + 1


def is_sum(found: object, count: int) -> bool:
    """Say whether a rank has the sum of the parts of so many ranks."""
    total = sum(map(factor, range(count)))
    return found == [value * total for value in PATTERN]


def blamed(hosts: Sequence[str], add_up: Callable[[Sequence[Group]], Wrong]) -> list[str]:
    """Return which hosts make a sum over all of them wrong: those that make it wrong with a proven host, too.

    In a sum of a framework nobody sees which rank added what. So hosts add up in pairs, until some of these are right; and
    each of the other hosts once more, with one of a right pair. Without a right pair all of them may be to blame. `add_up`
    has groups add up that have no host in common.
    """
    proven: list[str] = []
    for pairs in pairings(hosts)[:3]:
        first = add_up(pairs)
        proven = [host for pair in pairs if first.get(pair) == [] for host in pair]
        if proven:
            break
    suspects = [host for host in hosts if host not in proven]
    if not proven:
        return suspects
    again: list[Pair] = [(proven[number % len(proven)], host) for number, host in enumerate(suspects)]
    found = {pair: bad for pairs in disjoint_groups(again) for pair, bad in add_up(pairs).items()}
    return [host for proof, host in again if found.get((proof, host)) != []]
