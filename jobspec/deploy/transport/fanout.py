"""The same thing on many hosts side by side: one bad host never hides the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.hosts import Host

T = TypeVar("T")
H = TypeVar("H")

MAX_PARALLEL = 64  # hosts that are talked to at the same time


@dataclass(frozen=True, slots=True)
class Outcome(Generic[H, T]):
    """What came of it: a value for each host that did it, an error for each that did not."""

    done: Mapping[H, T]
    failed: Mapping[H, DeployError]


class OnHost(Protocol):
    """What belongs to one host, as a job's place there."""

    @property
    def host(self) -> Host:
        """The host."""


S = TypeVar("S", bound=OnHost)


def failures_of(outcome: Outcome[S, Any]) -> dict[str, DeployError]:
    """Return why hosts failed, by their names."""
    return {one.host.name: error for one, error in outcome.failed.items()}


def fan_out(hosts: Iterable[H], task: Callable[[H], T], at_once: int = MAX_PARALLEL) -> Outcome[H, T]:
    """Do `task` for all hosts, `at_once` at a time; every one is tried, whatever happens to the others."""
    every = list(hosts)
    done: dict[H, T] = {}
    failed: dict[H, DeployError] = {}

    def attempt(host: H) -> T | DeployError:
        try:
            return task(host)
        except DeployError as error:
            return error

    if not every:
        return Outcome({}, {})
    with ThreadPoolExecutor(min(at_once, len(every)), thread_name_prefix="host") as pool:
        for host, result in zip(every, pool.map(attempt, every), strict=True):
            if isinstance(result, DeployError):
                failed[host] = result
            else:
                done[host] = result
    return Outcome(done, failed)
