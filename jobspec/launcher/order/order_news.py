"""What a launcher tells one with an older order of the same members: what that does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import NodeFailure
from jobctl.jobspec.launcher.order.autonomy_terms import EarlierFailures, HotSpare, LastMove
from jobctl.jobspec.launcher.records import flat, record, with_rest

if TYPE_CHECKING:
    from typing import Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.system.files import Json


@record
class Home:
    """Where a node is now, and where its launcher hears others."""

    node: int
    host: str
    address: str
    port: Optional[int]

    @property
    def place(self) -> Tuple[str, str, Optional[int]]:
        """Host, address and port, as Member.at takes them."""
        return self.host, self.address, self.port


@record
class OrderNews:
    """What is new in an order. Which nodes have moved is in it if launchers have moved any since its base."""

    order: Json  # keys of the newer order that the older one gets
    failures: Sequence[NodeFailure]  # without the last lines of logs: a datagram has little room
    homes: Optional[Sequence[Home]] = None
    moved: Optional[LastMove] = None
    spares: Optional[Sequence[HotSpare]] = None
    earlier: Optional[EarlierFailures] = None

    def to_json(self) -> Json:
        """Return its JSON form: the keys of the order are among the others."""
        data: Json = {**self.order, "failures": [failure.to_json() for failure in self.failures]}
        if self.homes is not None:
            data["homes"] = [[home.node, *home.place] for home in self.homes]
        if self.moved is not None:
            data["moved"] = flat(self.moved)
        if self.spares is not None:
            data["spares"] = [flat(spare) for spare in self.spares]
        if self.earlier is not None:
            data["earlier"] = flat(self.earlier)
        return data

    @classmethod
    def from_json(cls, data: Json) -> OrderNews:
        """Return what `to_json` has written. Raises AttributeError, KeyError, TypeError or ValueError."""
        own = ("failures", "homes", "moved", "spares", "earlier")
        homes, moved, spares, earlier = data.get("homes"), data.get("moved"), data.get("spares"), data.get("earlier")
        return cls(
            order={name: value for name, value in data.items() if name not in own},
            failures=[NodeFailure.from_json(failure) for failure in data["failures"]],
            homes=None if homes is None else [Home(*home) for home in homes],
            moved=None if moved is None else with_rest(LastMove, moved),
            spares=None if spares is None else [with_rest(HotSpare, spare) for spare in spares],
            earlier=None if earlier is None else with_rest(EarlierFailures, earlier),
        )
