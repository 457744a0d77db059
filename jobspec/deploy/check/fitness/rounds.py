"""The rounds of a fitness check: who is measured when, and what counts of several values of one place.

What else runs on a host makes a value smaller and never larger, so the best one is the nearest to the truth. Where hosts
share cores, what others had of them is left out already, and a value errs to both sides. `SharedCores` weighs such values
over all rounds, and the last one counts.

Hosts of one machine may share more than cores, a disk for example, and are measured one after the other: what takes the
disk away meets one of them only. So where such a host looks slow, the fastest of its machine is measured again with it,
in the same round, and what the slow one has of the fast one's speed counts, too.

These hosts wait for each other, so none of them is measured without need: those that look well again only for their cores,
where one round may flatter a bad host if others had them; and what looks bad until it is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from jobctl.jobspec.deploy.check.fitness.verdicts import METRIC, METRICS, PastValues, Place, Values, doubts
from jobctl.jobspec.records import dataclass

SURE = 3  # comparisons of two hosts in one round from which on they count
FAR = 3.0  # times below what is too slow: as often as that, it is certain
# What each round measures: of hosts of their own, and of hosts that wait for each other.
OF_ALL = frozenset(metric.name for metric in METRICS if not metric.once)
OF_NEIGHBOURS = frozenset({"all cores"})

Doubts: TypeAlias = Mapping[str, frozenset[str]]  # by host, the names of metrics that are measured again
Round: TypeAlias = Callable[[Sequence[Sequence[str]], Doubts | None], Values]  # None: all metrics of all hosts
Steady: TypeAlias = Callable[[str, str], bool]  # of a metric and a host, whether one more round would say nothing else


def in_turns(machines: Iterable[Sequence[str]], number: int) -> list[list[str]]:
    """Return the order in which hosts of one machine are measured in a round: every other round begins at the other end."""
    return [list(reversed(hosts)) if number % 2 else list(hosts) for hosts in machines]


def measure_in_rounds(
    machines: Sequence[Sequence[str]],
    measure: Round,
    past: PastValues,
    rounds: int,
    again: int,
    steady: Steady = lambda metric, host: False,
) -> Values:
    """Return the value of each place, of several rounds.

    `measure` measures groups of hosts: the groups side by side, the hosts of a group, which share one machine's cores, in
    turn. Doubtful hosts get up to `again` more rounds, to be cleared by them. `steady` knows of values by core.
    """
    seen = _Seen(machines, steady)
    seen.keep(measure(in_turns(machines, 0), None))
    for number in range(1, rounds + again):
        doubted = seen.open(doubts(seen.best(), past))
        references = seen.references(doubted)
        asked = seen.asked(number < rounds, doubted, references)
        if not asked:
            break
        left = [[host for host in hosts if host in asked] for hosts in machines]
        found = measure(in_turns(filter(None, left), number), asked)
        seen.keep(found)
        seen.compare(found, references)
    return seen.best()


@dataclass
class _Seen:
    """The values of all rounds so far. `shares` are those of a host's reference, in rounds in which both were measured."""

    machines: Sequence[Sequence[str]]
    steady: Steady
    values: dict[str, dict[Place, list[float]]] = field(default_factory=dict)
    shares: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # by metric and host

    def keep(self, found: Values) -> None:
        for name, values in found.items():
            for place, value in values.items():
                self.values.setdefault(name, {}).setdefault(place, []).append(value)

    def best(self) -> dict[str, dict[Place, float]]:
        """Return the value of each place that counts.

        Of several comparisons the second best one counts: the best may have been a bad moment of the reference.
        """
        crowded = {host for hosts in self.machines if len(hosts) > 1 for host in hosts}
        found = {
            name: {
                place: tries[-1] if METRIC[name].by_core and place[0] in crowded else max(tries)
                for place, tries in places.items()
            }
            for name, places in self.values.items()
        }
        for (name, host), shares in self.shares.items():
            if len(shares) >= SURE:
                most = max(found[name][other, ""] for other in self._neighbours(host) if (other, "") in found[name])
                found[name][host, ""] = max(found[name][host, ""], most * min(1.0, sorted(shares)[-2]))
        return found

    def open(self, doubted: Doubts) -> dict[str, frozenset[str]]:
        """Return what is doubtful, and may still be cleared."""
        left = {
            host: frozenset(name for name in names if not self._is_certain(name, host))
            for host, names in doubted.items()
        }
        return {host: names for host, names in left.items() if names}

    def _is_certain(self, name: str, host: str) -> bool:
        """Say whether another look would change nothing; hosts of their own look again side by side, which takes no time."""
        if len(self._neighbours(host)) < 2:
            return False
        if METRIC[name].by_core:
            return self.steady(name, host)
        shares = self.shares.get((name, host), [])
        return len(shares) >= SURE and max(shares) < (1 - METRIC[name].tolerance) / FAR

    def references(self, doubted: Doubts) -> dict[str, frozenset[str]]:
        """Return which hosts are measured with doubtful ones of their machine, and what: the fastest of it."""
        best, found = self.best(), dict[str, frozenset[str]]()
        for host, names in doubted.items():
            for name in names:
                hosts = self._neighbours(host)
                if len(hosts) > 1 and not METRIC[name].by_core and (host, "") in best.get(name, {}):
                    fastest = max(hosts, key=lambda other, name=name: best[name].get((other, ""), 0.0))  # type: ignore[misc]
                    found[fastest] = found.get(fastest, frozenset()) | {name}
        return found

    def asked(self, whole: bool, doubted: Doubts, references: Doubts) -> dict[str, frozenset[str]]:
        """Return what a further round measures of each host; `whole`: also of those that look well."""
        found = {}
        for hosts in self.machines:
            alone = len(hosts) == 1
            for host in hosts:
                looks_well = OF_ALL if alone else frozenset(n for n in OF_NEIGHBOURS if not self.steady(n, host))
                found[host] = doubted.get(host, frozenset()) | references.get(host, frozenset())
                found[host] |= looks_well if whole else frozenset()
        return {host: names for host, names in found.items() if names}

    def compare(self, found: Values, references: Doubts) -> None:
        """Keep what part of its reference's speed each host had in a round."""
        for reference, name in ((host, name) for host, names in references.items() for name in names):
            values = found.get(name, {})
            for host in self._neighbours(reference):
                if host != reference and (host, "") in values and values.get((reference, ""), 0.0) > 0:
                    self.shares.setdefault((name, host), []).append(values[host, ""] / values[reference, ""])

    def _neighbours(self, host: str) -> Sequence[str]:
        return next(hosts for hosts in self.machines if host in hosts)
