"""What an order says of the generations that launchers may begin by themselves. plan/generation.py says what each field means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import NodeFailure
from jobctl.jobspec.launcher.records import changed, flat, known, record, with_rest

if TYPE_CHECKING:
    from typing import Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.system.files import Json

# Failures that an order tells of: decisions look at the last ones, and a datagram holds no more than 64 KiB.
FAILURES_TOLD = 50
TIMES_TOLD = 2000  # failures before these of which it has the time


@record
class Base:
    """A generation by its number and the id of its rendezvous: the one that a supervisor or a command began last."""

    number: int
    id: str
    rest: Json


@record
class LastMove:
    """The generation in which launchers have moved a node last, and how often they have since the base."""

    number: int
    id: str
    times: int
    rest: Json


@record
class HotSpare:
    """A host with an idle launcher, to which launchers may move a lost node."""

    host: str
    address: str
    port: int
    rest: Json


@record
class FailureRule:
    """What to do about a failure with this exit code and such a line in its log; None is about any."""

    exit: Optional[int]
    log: Optional[str]
    do: str  # fail, restart or exclude_host
    hint: Optional[str]
    rest: Json


@record
class EarlierFailures:
    """Failures of which an order says no more than that they count, as others came after them."""

    first: int  # the generation that the first of them has ended
    count: int  # how many count for good
    at: Sequence[float]  # when the others were, where a failure counts for a while only
    rest: Json

    def counting(self, since: float) -> int:
        """Return how many count where those do that were not before `since`."""
        return self.count + sum(1 for at in self.at if at >= since)

    def and_more(self, failures: Sequence[NodeFailure], since: Optional[float]) -> EarlierFailures:
        """Return it with more failures, without what was before `since` (None: all count for good).

        Those that are too many for their times count for good, so that there is an end.
        """
        if since is None:
            return changed(self, count=self.count + len(failures))
        at = [time for time in (*self.at, *(round(one.at, 3) for one in failures)) if time >= since]
        return changed(self, count=self.count + len(at[:-TIMES_TOLD]), at=at[-TIMES_TOLD:])


@record
class AutonomyTerms:
    """What launchers may do by themselves while no supervisor answers."""

    restarts: int
    rules: Sequence[FailureRule]
    ports: Tuple[int, int]  # the first and the last port that they may choose
    failures: Sequence[NodeFailure]  # those because of which launchers have begun generations, the last of them
    base: Optional[Base]  # the generation of a supervisor that it goes back to, where that matters
    spares: Sequence[HotSpare]
    moved: Optional[LastMove]
    window: Optional[float]  # seconds for which a failure counts, None for the whole run
    spent: Sequence[float]  # where there is a window: when those failed that `restarts` is less by
    earlier: Optional[EarlierFailures]  # those before `failures`
    rest: Json

    @classmethod
    def from_json(cls, data: Json) -> AutonomyTerms:
        """Return what an order has. Raises AttributeError, KeyError, TypeError or ValueError."""
        terms = known(
            cls, {"base": None, "spares": [], "moved": None, "window": None, "spent": [], "earlier": None, **data}
        )
        base, moved, earlier = terms["base"], terms["moved"], terms["earlier"]
        terms.update(
            rules=[with_rest(FailureRule, {"hint": None, **rule}) for rule in terms["rules"]],
            failures=[NodeFailure.from_json(failure) for failure in terms["failures"]],
            base=with_rest(Base, base) if base else None,
            spares=[with_rest(HotSpare, spare) for spare in terms["spares"] or ()],
            moved=with_rest(LastMove, moved) if moved else None,
            earlier=with_rest(EarlierFailures, earlier) if earlier else None,
        )
        return cls(**terms)

    def to_json(self) -> Json:
        """Return the order's form."""
        data = flat(self)
        data.update(
            rules=[flat(rule) for rule in self.rules],
            failures=[failure.to_json() for failure in self.failures],
            base=self.base and flat(self.base),
            spares=[flat(spare) for spare in self.spares],
            moved=self.moved and flat(self.moved),
            earlier=self.earlier and flat(self.earlier),
        )
        for name in ("base", "spares", "moved", "window", "spent", "earlier"):
            if not data[name]:
                del data[name]
        return data

    def restarts_left(self, now: float) -> int:
        """Return how many generations launchers may still begin; `now` is in seconds since the epoch."""
        since = now - self.window if self.window is not None else 0.0
        over = sum(1 for at in self.spent if at < since)
        earlier = self.earlier.counting(since) if self.earlier is not None else 0
        return self.restarts + over - earlier - sum(1 for failure in self.failures if failure.at >= since)

    def with_failure(self, failure: NodeFailure) -> AutonomyTerms:
        """Return the terms of the order after a failure."""
        return changed(self, failures=[*self.failures, failure]).abridged()

    def abridged(self) -> AutonomyTerms:
        """Return the same with no more failures than an order may have: those of earlier versions have all."""
        more, kept = self.failures[:-FAILURES_TOLD], self.failures[-FAILURES_TOLD:]
        if not more:
            return self
        since = None if self.window is None else kept[-1].at - self.window
        earlier = self.earlier or EarlierFailures(more[0].generation, 0, [], {})
        return changed(self, failures=kept, earlier=earlier.and_more(more, since))
