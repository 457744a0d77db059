"""What an order says of the generations that launchers may begin by themselves. plan/generation.py says what each field means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import NodeFailure
from jobctl.jobspec.launcher.records import flat, known, record, with_rest

if TYPE_CHECKING:
    from typing import Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.files import Json


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
class AutonomyTerms:
    """What launchers may do by themselves while no supervisor answers."""

    restarts: int
    rules: Sequence[FailureRule]
    ports: Tuple[int, int]  # the first and the last port that they may choose
    failures: Sequence[NodeFailure]  # those because of which launchers have begun generations
    base: Optional[Base]  # the generation of a supervisor that it goes back to, where that matters
    spares: Sequence[HotSpare]
    moved: Optional[LastMove]
    window: Optional[float]  # seconds for which a failure counts, None for the whole run
    spent: Sequence[float]  # where there is a window: when those failed that `restarts` is less by
    rest: Json

    @classmethod
    def from_json(cls, data: Json) -> AutonomyTerms:
        """Return what an order has. Raises AttributeError, KeyError, TypeError or ValueError."""
        terms = known(cls, {"base": None, "spares": [], "moved": None, "window": None, "spent": [], **data})
        base, moved = terms["base"], terms["moved"]
        terms.update(
            rules=[with_rest(FailureRule, {"hint": None, **rule}) for rule in terms["rules"]],
            failures=[NodeFailure.from_json(failure) for failure in terms["failures"]],
            base=with_rest(Base, base) if base else None,
            spares=[with_rest(HotSpare, spare) for spare in terms["spares"] or ()],
            moved=with_rest(LastMove, moved) if moved else None,
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
        )
        for name in ("base", "spares", "moved", "window", "spent"):
            if not data[name]:
                del data[name]
        return data

    def restarts_left(self, now: float) -> int:
        """Return how many generations launchers may still begin; `now` is in seconds since the epoch."""
        since = now - self.window if self.window is not None else 0.0
        over = sum(1 for at in self.spent if at < since)
        return self.restarts + over - sum(1 for failure in self.failures if failure.at >= since)
