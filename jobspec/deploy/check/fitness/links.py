"""Which host has a slow link: pairs of hosts in two rounds, whatever their number. Pure.

A slow pair says that one of its two hosts, or what is between them, is slow. In the second round each host of a slow pair
gets a partner that is proven: one of a fast pair. With a proven partner a healthy host is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

from jobctl.jobspec.records import dataclass

LINK_TOLERANCE = 0.30  # below the fastest pair, from which on both hosts of a pair are suspects
# Half of that deserves another look: a healthy link that was disturbed once makes links differ, and hides a slow one.
DOUBT = LINK_TOLERANCE / 2
LOSS = 0.004  # of segments that have to be sent again: a healthy network loses far less
ROUNDS = 6  # of pairs, at most; each proves at least as many hosts again, but for those that are bad
SURE, SAMPLE_TOLERANCE = 3, 0.10  # measurements that differ by no more than this part of them: it is not chance
LOSSES = 4.0  # times the median of all hosts, beside that

Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LinkTransfer:
    """What one host sent to another: Mbit/s, and the share of segments that were lost."""

    speed: float
    lost: float


@dataclass(frozen=True, slots=True)
class LinkSpeed:
    """What a pair of hosts measured: Mbit/s in the slower direction and in the faster one, and the worse share of lost segments."""

    speed: float
    lost: float
    faster: float

    @classmethod
    def of(cls, *ways: Sequence[LinkTransfer]) -> LinkSpeed:
        """Return that of a pair: the best speed of each direction, and the usual loss of the worse one.

        To lose little once is luck where few are sent, and to lose much once is a moment's trouble.
        """
        slower, faster = sorted(max(one.speed for one in way) for way in ways)
        return cls(slower, max(median(one.lost for one in way) for way in ways), faster)


Measured: TypeAlias = Mapping[Pair, LinkSpeed]


def measure_links(hosts: Sequence[str], measure: Callable[[Sequence[Pair]], Measured]) -> dict[Pair, LinkSpeed]:
    """Measure links in two rounds of pairs; three hosts take a third, in which each has met both others.

    `measure` measures pairs that have no host in common. Where there are more suspects than proven hosts, or none is
    proven yet, there are further rounds: who has met no proven host would be accused for its partner.
    """
    found = dict(measure(first_pairs(hosts)))
    tried = {frozenset(pair) for pair in found}
    for _ in range(ROUNDS - 1):
        pairs = second_pairs(hosts, found, tried)
        if not pairs:
            break
        tried |= {frozenset(pair) for pair in pairs}
        found.update(measure(pairs))
    return found


def first_pairs(hosts: Sequence[str]) -> list[Pair]:
    """Return neighbours; of an odd number the last one has no partner yet."""
    return [(hosts[number], hosts[number + 1]) for number in range(0, len(hosts) - 1, 2)]


def second_pairs(hosts: Sequence[str], found: Measured, tried: set[frozenset[str]]) -> list[Pair]:
    """Return pairs of hosts that are not proven yet with hosts that are, each host once."""
    proven = _proven(found)
    if len(hosts) == 3:  # who is proven, of three, is known once all have met
        return [(a, b) for a, b in ((hosts[0], hosts[2]), (hosts[1], hosts[2])) if frozenset((a, b)) not in tried][:1]
    if not proven:  # each pair has a bad host: one that is slow, or one that loses
        return next((pairs for pairs in pairings(hosts) if not any(frozenset(pair) in tried for pair in pairs)), [])
    free = [host for host in hosts if host in proven]
    pairs = []
    for host in hosts:
        if host in proven or any(host in pair and pair & proven for pair in tried):
            continue
        partner = next((other for other in free if frozenset((host, other)) not in tried), None)
        if partner is not None:
            free.remove(partner)
            pairs.append((partner, host))
    return pairs


def _proven(found: Measured) -> frozenset[str]:
    """Return the hosts of fast pairs that lose little."""
    if not found:
        return frozenset()
    fastest, least = max(one.speed for one in found.values()), min(one.lost for one in found.values())
    far, much = fastest * (1 - LINK_TOLERANCE), max(LOSS, LOSSES * least)
    return frozenset(host for pair, one in found.items() if one.speed >= far and one.lost <= much for host in pair)


def by_host(found: Measured) -> dict[str, LinkSpeed]:
    """Return for each host the best of its links: with a healthy partner a healthy host is fast."""
    links: dict[str, list[LinkSpeed]] = {}
    for pair, one in found.items():
        for host in pair:
            links.setdefault(host, []).append(one)
    return {
        host: LinkSpeed(max(x.speed for x in mine), min(x.lost for x in mine), max(x.faster for x in mine))
        for host, mine in links.items()
    }


def lossy(hosts: Mapping[str, LinkSpeed]) -> dict[str, float]:
    """Return hosts that lose much more than the others do, and how much."""
    usual = median(one.lost for one in hosts.values()) if hosts else 0.0
    return {host: one.lost for host, one in hosts.items() if one.lost > max(LOSS, LOSSES * usual)}


def slow_pairs(found: Measured) -> list[Pair]:
    """Return pairs at less than half speed whose hosts are both fast with others: what is between them is slow."""
    proven = _proven(found)
    fastest = max((one.speed for one in found.values()), default=0.0)
    return [pair for pair, one in found.items() if proven.issuperset(pair) and one.speed < fastest / 2]


def doubtful(found: Measured) -> list[Pair]:
    """Return pairs that deserve another look: slower than the fastest, or in one direction than in the other, or lossy."""
    fastest = max((one.faster for one in found.values()), default=0.0)
    return [pair for pair, one in found.items() if one.speed < fastest * (1 - DOUBT) or one.lost > LOSS / 2]


def deciding(found: Measured, pairs: Sequence[Pair]) -> list[Pair]:
    """Return those of some pairs on which a verdict rests: the best one of each host that is not proven, and pairs of proven ones."""
    proven = _proven(found)
    best: dict[str, Pair] = {}
    for pair in sorted(found, key=lambda pair: (found[pair].speed, -found[pair].lost)):
        best.update(dict.fromkeys(pair, pair))
    return [pair for pair in pairs if proven.issuperset(pair) or any(best[h] == pair for h in pair if h not in proven)]


def is_steady(way: Sequence[LinkTransfer]) -> bool:
    """Say whether one direction has been measured so often, with the same result, that it was not disturbed."""
    speeds = [one.speed for one in way]
    return (
        len(way) >= SURE
        and min(speeds) > max(speeds) * (1 - SAMPLE_TOLERANCE)
        and len({one.lost > LOSS for one in way[-SURE:]}) == 1
    )


def directions(pair: Pair) -> tuple[Pair, Pair]:
    """Return the two directions of a pair, by sender and receiver."""
    return pair, (pair[1], pair[0])


def unsure(tries: Mapping[Pair, Sequence[LinkTransfer]], pair: Pair, fastest: float) -> list[Pair]:
    """Return the directions of a pair that deserve another look: those that look bad, until one is bad for certain.

    The worse direction decides, so a pair is bad then, whatever the other one is.
    """
    ways = {way: tries.get(way, ()) for way in directions(pair)}
    if any(_is_bad(way, fastest) for way in ways.values()):
        return []
    return [one for one, way in ways.items() if _may_be_bad(way, fastest) and not is_steady(way)]


def _is_bad(way: Sequence[LinkTransfer], fastest: float) -> bool:
    """Say whether a direction was slow, or lost much, in each of so many measurements that it was not chance."""
    slow = bool(way) and max(one.speed for one in way) < fastest * (1 - LINK_TOLERANCE)
    return (slow and is_steady(way)) or (len(way) >= SURE and all(one.lost > LOSS for one in way))


def _may_be_bad(way: Sequence[LinkTransfer], fastest: float) -> bool:
    if not way:
        return True
    return max(one.speed for one in way) < fastest * (1 - DOUBT) or median(one.lost for one in way) > LOSS / 2


def disjoint_groups(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return pairs in groups, in each of which no host is twice: a group is measured side by side."""
    groups: list[list[Pair]] = []
    for pair in pairs:
        group = next((one for one in groups if not any(set(pair) & set(other) for other in one)), None)
        if group is None:
            groups.append([pair])
        else:
            group.append(pair)
    return groups


def pairings(hosts: Sequence[str]) -> list[list[Pair]]:
    """Return rounds of pairs in which each host meets each other one; of an odd number one rests in each."""
    ring: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    found = []
    for _ in ring[1:]:
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        found.append([(one, other) for one, other in pairs if one is not None and other is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found
