"""The rounds of a fitness check: who is measured when, and what counts of several values of one place.

What else runs on a host makes a value smaller and never larger, so the best one is the nearest to the truth. Where hosts
share cores, what others had of them is left out already, and a value errs to both sides. `SharedCores` weighs such values
over all rounds, and the last one counts.

Hosts of one machine may share more than cores, a disk for example, and are measured one after the other: what takes the
disk away meets one of them only. So where such a host looks slow, the fastest of its machine is measured again with it,
in the same round, and what the slow one has of the fast one's speed counts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from jobctl.jobspec.deploy.check.fitness.verdicts import METRIC, PastValues, Place, Values, doubts
from jobctl.jobspec.records import dataclass

SURE = 3  # comparisons of two hosts in one round from which on they count

Doubts: TypeAlias = Mapping[str, frozenset[str]]  # by host, the names of metrics that are measured again
Round: TypeAlias = Callable[[Sequence[Sequence[str]], Doubts | None], Values]  # None: all metrics of all hosts


def in_turns(machines: Iterable[Sequence[str]], number: int) -> list[list[str]]:
    """Return the order in which hosts of one machine are measured in a round: every other round begins at the other end."""
    return [list(reversed(hosts)) if number % 2 else list(hosts) for hosts in machines]


def measure_in_rounds(
    machines: Sequence[Sequence[str]], measure: Round, past: PastValues, rounds: int, again: int
) -> Values:
    """Return the value of each place, of several rounds.

    `measure` measures groups of hosts: the groups side by side, the hosts of a group, which share one machine's cores, in
    turn. Doubtful hosts get up to `again` more rounds, to be cleared by them.
    """
    seen = _Seen(machines)
    for number in range(rounds):
        seen.keep(measure(in_turns(machines, number), None))
    for number in range(rounds, rounds + again):
        doubted = doubts(seen.best(), past)
        if not doubted:
            break
        references = seen.references(doubted)
        asked = {
            host: doubted.get(host, frozenset()) | references.get(host, frozenset())
            for hosts in machines
            for host in hosts
        }
        left = [[host for host in hosts if asked[host]] for hosts in machines]
        found = measure(in_turns(filter(None, left), number), {host: names for host, names in asked.items() if names})
        seen.keep(found)
        seen.compare(found, references)
    return seen.best()


@dataclass
class _Seen:
    """The values of all rounds so far. `shares` are those of a host's reference, in rounds in which both were measured."""

    machines: Sequence[Sequence[str]]
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

    def compare(self, found: Values, references: Doubts) -> None:
        """Keep what part of its reference's speed each host had in a round."""
        for reference, name in ((host, name) for host, names in references.items() for name in names):
            values = found.get(name, {})
            for host in self._neighbours(reference):
                if host != reference and (host, "") in values and values.get((reference, ""), 0.0) > 0:
                    self.shares.setdefault((name, host), []).append(values[host, ""] / values[reference, ""])

    def _neighbours(self, host: str) -> Sequence[str]:
        return next(hosts for hosts in self.machines if host in hosts)
