"""Which host makes those behind it wait, in a line of hosts that hand an image on.

A host that falls behind one that goes on itself is slow, or the way from that one to it is. Whether a host is slow that takes the
image from one that has all of it cannot be seen: it goes to the end as a trial, and the next one takes its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from jobctl.jobspec.deploy.host.chain import Link

CHECK_INTERVAL = 5.0  # seconds between two looks
LAG = 12 << 20  # bytes by which a host is behind
MIN_BYTES = 48 << 20  # bytes that a host has to have: before, engines and connections are still starting
TIMES = 2  # by which a host is slower than the one that it takes the image from
LOOKS = 2  # in a row that show the same
SURE = 4  # the same, where no other host is known to be quicker
TRIALS = 2  # for each of those that have all


class Pace:
    """Watches how hosts get on. Each host is called slow once at most."""

    def __init__(self) -> None:
        self._then, self._before = 0.0, dict[str, int]()
        self._behind: Counter[str] = Counter()  # looks in a row in which a host was behind
        self._blamed: Counter[str] = Counter()  # how often hosts were behind one
        self._slow: set[str] = set()

    def slow(self, now: float, links: Sequence[Link], places: Mapping[str, int]) -> str | None:
        """Return the host that should be moved to the end, given who takes it from whom, and how far each is; None if none."""
        if now - self._then < CHECK_INTERVAL:
            return None
        rates = {name: at - self._before.get(name, at) for name, at in places.items()}
        first, self._then, self._before = not self._before, now, dict(places)
        if first:
            return None
        gets, gives = {link.host for link in links}, {link.source for link in links}
        for link in links:
            behind = places[link.source] - places[link.host] >= LAG and places[link.host] >= MIN_BYTES
            needed = LOOKS if link.source in gets else SURE
            if link.source in gets:
                behind = behind and rates[link.host] * TIMES <= rates[link.source]
            else:
                behind = behind and self._blamed[link.source] < TRIALS
            self._behind[link.host] = self._behind[link.host] + 1 if behind else 0
            if self._behind[link.host] >= needed and link.host in gives and link.host not in self._slow:
                return self._call_slow(link, gets)
        return None

    def _call_slow(self, link: Link, gets: set[str]) -> str:
        """Return the slow one of two: where a second host is behind the same one, it is that one."""
        self._blamed[link.source] += 1
        is_source = link.source in gets and self._blamed[link.source] > 1 and link.source not in self._slow
        found = link.source if is_source else link.host
        self._slow.add(found)
        self._behind.clear()
        return found
