"""How long the supervisor waits: before it tries again, and before it trusts hosts that answer again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jobctl.jobspec.supervise.decisions import Decision

FIRST_PAUSE, LONGEST_PAUSE = 0.3, 5.0  # seconds before what could not be done is tried again, at first and at last


@dataclass
class Retry:
    """When to try again what could not be done: after pauses that grow, for as long as the same is to be done."""

    what: object = None
    pause: float = 0.0
    due: float = 0.0

    def waits(self, what: object, now: float) -> bool:
        """Say whether it is too early to try `what` again. A clock that was set back keeps nobody waiting."""
        return what == self.what and 0.0 < self.due - now <= self.pause

    def failed(self, what: object, now: float) -> None:
        """Take note that `what` could not be done."""
        self.pause = min(2 * self.pause, LONGEST_PAUSE) if what == self.what else FIRST_PAUSE
        self.what, self.due = what, now + self.pause

    def done(self) -> None:
        """Take note that nothing is left to be tried again."""
        self.what, self.pause = None, 0.0


@dataclass
class Steady:
    """Since when each host answers."""

    since: dict[str, float] = field(default_factory=dict)

    def look(self, hosts: Iterable[str], now: float, least: float) -> bool:
        """Take note of the hosts that answer; say whether all of them have done so for `least` seconds."""
        self.since = {host: self.since.get(host, now) for host in hosts}
        return all(now - at >= least for at in self.since.values())


def identity(decision: Decision) -> object:
    """Return what two decisions have in common that are about the same: times and steps go on meanwhile."""
    return type(decision), getattr(decision, "cause", getattr(decision, "reason", None))
