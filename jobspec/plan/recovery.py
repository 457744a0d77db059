"""Decisions about failures, and the record of each."""

from __future__ import annotations

from typing import Literal

from jobctl.jobspec.records import dataclass

STRAGGLER = "straggler"  # the kind of a failure that is none: its node was moved, since it made the others wait
UNTOLD = "untold"  # the kind of a failure of which launchers have kept no more than that it counts


@dataclass(frozen=True, slots=True)
class Rule:
    """What to do about a failure whose exit code or last log lines match; `hint` is a remedy for people."""

    log: str | None
    exit: int | None
    do: Literal["fail", "restart", "exclude_host"]
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a generation ended: the process (or launcher) that failed first.

    `at` is seconds since the epoch, `progress` the job's step number then, `ran` how many seconds the
    generation had run. `rank` is None where the node as a whole failed. `alike` has rank and exit code of all
    processes of the generation that ended badly by themselves: a bug fails on many ranks, in any order. `alone`: the
    generation went on, and the node joined it again. `noted`: when a supervisor took it into the
    ledger; `at` is by the clock of a host, which may be far from the supervisor's.
    """

    generation: int
    at: float
    node: int
    host: str
    rank: int | None
    exit_code: int | None
    kind: str
    progress: int | None
    ran: float
    log: str | None = None
    tail: tuple[str, ...] = ()
    reason: str | None = None
    alike: tuple[tuple[int, int], ...] = ()
    alone: bool = False
    role: str = "trainer"  # whose rank it is
    noted: float | None = None

    @property
    def counts_from(self) -> float:
        """When it was, for a budget with a window: by the supervisor's clock, where one took note of it."""
        return self.at if self.noted is None else self.noted


@dataclass(frozen=True, slots=True)
class Recovery:
    """The policy of the supervisor; durations are seconds, None means for ever (or, for `window`, the whole run).

    `exclude_stragglers`: a node that makes the others wait moves to another host.
    """

    max_restarts: int
    window: float | None
    on_host_loss: Literal["replace", "shrink", "wait", "fail"]
    host_timeout: float
    wait_timeout: float | None
    max_duration: float | None
    rules: tuple[Rule, ...]
    exclude_stragglers: bool = False
