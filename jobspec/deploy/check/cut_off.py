"""Which hosts are cut off, of links that carry nothing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

HINT = "is a firewall between them, or the wrong `addr=` in the hosts file? Ports 20000-29999 have to be open"


def cut_off(links: Collection[tuple[str, str]], order: Sequence[str], explained: Collection[str]) -> set[str]:
    """Return the hosts to blame for links (from whom, to whom) that are cut, beside those that explain theirs.

    A link has two ends: the host that most others have no link with is to blame, then the next. Of two hosts with as
    many cut links, the one that is not reached, and then the later one in `order`, gives way.
    """
    blamed: set[str] = set()
    while left := [link for link in links if not {*link} & {*blamed, *explained}]:
        ends, inner = Counter(host for link in left for host in link), Counter(to for _, to in left)
        blamed.add(max(order, key=lambda host: (ends[host], inner[host], order.index(host))))
    return blamed
