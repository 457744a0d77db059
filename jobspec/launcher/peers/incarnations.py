"""Which process the launcher of each node is, where one may be started again without what it kept. docs/protocol.md, rule 13."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.peers.lease import SILENT_TICKS, TICK
from jobctl.jobspec.launcher.records import record

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Set, Tuple


@record
class Incarnation:
    """What a launcher says of itself beside a tick, to the launcher of one other node."""

    name: str  # of its process: no other one has it
    address: str  # where it is now
    knows: Optional[
        str
    ]  # the receiver's launcher, by its name, that it has met in its order; None before it has met all


class Incarnations:
    """The launchers that this one has met in its order: of all other nodes at once, and of each node only one.

    A pod that replaces another one begins with an empty disk, so its launcher knows neither the newest order nor whether
    its node has begun there. The others do. So a node begins only with those whose launchers have met this one. An order
    is named by how new it is, as in messages. `together`: no node goes on where another one has failed.
    """

    def __init__(self, address: str, together: bool = True) -> None:
        self.name, self.address, self.together = os.urandom(8).hex(), address, together
        self.age: Optional[List[Any]] = None  # of the order that the launcher is in
        self.heard: Dict[int, Tuple[Incarnation, float]] = {}  # in it: which of each node was heard last, and when
        self.met: Dict[int, Incarnation] = {}
        self.knowing: Set[Tuple[int, str]] = set()  # launchers that have said that they have met this one
        self.joined: Optional[List[Any]] = None  # the order that goes on without this node until it is back
        self.forgot = False  # whether others have met another launcher of this node in the order

    def enter(self, age: Optional[List[Any]]) -> None:
        """Forget whom this launcher has met if it is in another order now; None while it takes part in none."""
        if age is not None and age != self.age:
            self.age, self.heard, self.met, self.knowing, self.forgot = age, {}, {}, set(), False

    def introduce(self, node: int) -> Incarnation:
        """Return what to say to the launcher of a node."""
        met = self.met.get(node)
        return Incarnation(self.name, self.address, met.name if met is not None else None)

    def hear(self, node: int, said: Incarnation, others: Sequence[int], now: float) -> None:
        """Take over what a launcher says that is in the same order, which `others` have a part in."""
        self.heard[node] = said, now
        if said.knows == self.name:
            self.knowing.add((node, said.name))
        elif said.knows is not None:
            self.forgot = True
        if not self.met and all(n in self.heard and now - self.heard[n][1] <= SILENT_TICKS * TICK for n in others):
            self.met = {n: self.heard[n][0] for n in others}

    @property
    def addresses(self) -> Dict[int, str]:
        """Where the launchers are that this node begins with: a datagram of one that is gone may come late."""
        last = {node: said for node, (said, _) in self.heard.items()}
        chosen = {**last, **self.met} if self.together else last
        return {node: said.address for node, said in chosen.items()}

    def is_another(self, node: int, said: Optional[Incarnation]) -> bool:
        """Return whether a launcher is not the one of its node that this one has met."""
        return said is not None and self.met.get(node, said).name != said.name

    def is_ready(self, node: int) -> bool:
        """Return whether the launcher of a node that this one has met has met this one, too."""
        if self.age is not None and self.joined == self.age:
            return True
        if node not in self.met:
            return False
        return (node, self.met[node].name) in self.knowing if self.together else any(n == node for n, _ in self.knowing)
