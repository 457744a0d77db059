"""From whom each host takes an image: a line of hosts behind the one that has it; those that are lost are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """What a host is told: take it from `source`."""

    host: str
    source: str


class Chain:
    """The hosts of one transfer. Each takes the image from its predecessor, while that one still gets it.

    A host that cannot take it from one takes it from another; one that cannot from any is lost, and what it would have
    handed on comes from elsewhere. A slow one becomes the last. A host that has all of it needs nobody any more, and can
    still hand it on.
    """

    def __init__(self, source: str, hosts: Sequence[str]) -> None:
        self._order = [source, *hosts]
        self._source_of = {host: before for before, host in pairwise(self._order)}
        self._in_vain: dict[str, set[str]] = {host: set() for host in self._order}
        self.lost: set[str] = set()

    @property
    def links(self) -> list[Link]:
        """From whom each host takes it now."""
        return [Link(host, source) for host, source in self._source_of.items()]

    def source_of(self, host: str) -> str | None:
        """Return the one that a host takes it from, None for one that needs nobody."""
        return self._source_of.get(host)

    def takers_of(self, host: str) -> list[str]:
        """Return those that still take it from a host."""
        return [taker for taker, source in self._source_of.items() if source == host]

    def has_all(self, host: str) -> None:
        """Take note that a host needs nobody any more."""
        self._source_of.pop(host, None)

    def cut(self, host: str, source: str) -> list[Link]:
        """Return the new links after a host could not go on taking it from `source`; none if that is an old story."""
        if self._source_of.get(host) != source:
            return []
        self._in_vain[host].add(source)
        return self._link_again(host)

    def lose(self, host: str) -> list[Link]:
        """Return the new links after a host is gone."""
        if host in self.lost:
            return []
        self.lost.add(host)
        self._source_of.pop(host, None)
        return [link for taker in self.takers_of(host) for link in self._link_again(taker)]

    def move_last(self, host: str) -> list[Link]:
        """Return the new links after a host that is slow has become the last one: none wait for it then."""
        takers = self.takers_of(host)
        if host not in self._source_of or not takers:
            return []
        self._order.remove(host)
        self._order.append(host)
        return [link for one in (*takers, host) for link in self._link_again(one)]

    def _link_again(self, host: str) -> list[Link]:
        for source in self._others(host):
            self._source_of[host] = source
            return [Link(host, source)]
        return self.lose(host)

    def _others(self, host: str) -> Iterator[str]:
        """Yield whom a host may take it from: first those before it, the nearest first, then those behind it."""
        place = self._order.index(host)
        for other in (*reversed(self._order[:place]), *self._order[place + 1 :]):
            if other not in self.lost and other not in self._in_vain[host] and not self._needs(other, host):
                yield other

    def _needs(self, host: str, other: str) -> bool:
        """Say whether what a host gets comes through `other`."""
        at: str | None = host
        while at is not None and at != other:
            at = self._source_of.get(at)
        return at == other
