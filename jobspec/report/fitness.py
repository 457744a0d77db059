"""How fit the hosts of a run were: what was measured of them, what they had measured before, and who made others wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.check.fitness.verdicts import METRIC, Place
from jobctl.jobspec.deploy.model.untrusted import as_moment, as_text
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.runs import Event


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """One verdict about one host, measured at `at` (seconds since the epoch); `code` says what is wrong."""

    at: float
    host: str
    check: str
    verdict: str
    message: str
    code: str | None
    value: float | None
    median: float | None
    unit: str

    @property
    def share(self) -> float | None:
        """The value as a fraction of the median, None where there is none."""
        return self.value / self.median if self.value is not None and self.median else None


@dataclass(frozen=True, slots=True)
class SlowNode:
    """A node that made the others wait, as it was first told in a generation; times are in seconds.

    `stays` says why it did not leave its host although a rule says so, None where there is no such rule or it did.
    """

    at: float
    generation: int
    node: int
    rank: int | None
    host: str
    seconds: float
    median: float
    stays: str | None = None


@dataclass(frozen=True, slots=True)
class HostHistory:
    """What a host has measured of one thing so far, oldest first."""

    host: str
    what: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FitnessStory:
    """The fitness of a run's hosts; `mode` and `image` are those of the last check, None without one."""

    mode: str | None = None
    image: str | None = None
    verdicts: tuple[HostVerdict, ...] = ()
    slow: tuple[SlowNode, ...] = ()
    history: tuple[HostHistory, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that were measured."""
        return tuple(dict.fromkeys(one.host for one in self.verdicts))

    def with_history(self, past: Mapping[str, Mapping[Place, Sequence[float]]]) -> FitnessStory:
        """Return the story with what its hosts have measured so far: by metric, and by host and device."""
        found = [
            HostHistory(host, f"{name} {device}".strip(), METRIC[name].unit, tuple(values))
            for name, places in past.items()
            for (host, device), values in places.items()
            if name in METRIC and values and host in self.hosts
        ]
        return replace(self, history=tuple(sorted(found, key=lambda one: self.hosts.index(one.host))))


def fitness_of(run: Iterable[Event]) -> FitnessStory:
    """Return what the events of a run tell of its hosts: of each host and check the last verdict."""
    events = list(run)
    checks = [event for event in events if event.kind == "fitness"]
    verdicts = {(one.host, one.check): one for event in checks for one in _verdicts(event)}
    slow = [one for event in events if event.kind == "straggler" and (one := _slow(event)) is not None]
    stays = {(e.number("generation"), e.number("node")): e.message for e in events if e.kind == "straggler-stays"}
    return FitnessStory(
        checks[-1].text("mode") if checks else None,
        checks[-1].text("image") if checks else None,
        tuple(verdicts.values()),
        tuple(replace(one, stays=stays.get((one.generation, one.node))) for one in slow),
    )


def _verdicts(event: Event) -> Iterator[HostVerdict]:
    told = event.details.get("findings")
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict) and (made := _verdict(event.at, one)) is not None:
            yield made


def _verdict(at: float, one: Mapping[str, Any]) -> HostVerdict | None:
    host, check, verdict = (as_text(one.get(key)) for key in ("host", "check", "verdict"))
    if host is None or check is None or verdict is None:
        return None
    code, unit, message = (as_text(one.get(key)) for key in ("code", "unit", "message"))
    value, median = as_moment(one.get("value")), as_moment(one.get("median"))
    return HostVerdict(at, host, check, verdict, message or "", code, value, median, unit or "")


def _slow(event: Event) -> SlowNode | None:
    node, host = event.number("node"), event.host
    seconds, median = as_moment(event.details.get("seconds")), as_moment(event.details.get("median"))
    if node is None or host is None or seconds is None or not median:
        return None
    return SlowNode(event.at, event.number("generation") or 0, node, event.number("rank"), host, seconds, median)
