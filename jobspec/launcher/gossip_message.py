"""The datagram by which launchers without a supervisor tell each other how things are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order_news import OrderNews
from jobctl.jobspec.launcher.progress import Headway
from jobctl.jobspec.launcher.records import record

if TYPE_CHECKING:
    from typing import Optional, Set, Tuple

    from jobctl.jobspec.launcher.files import Json


@record
class GossipMessage:
    """What one launcher tells another one, once a second.

    `from_json` raises KeyError, TypeError or ValueError for what no launcher has sent: anybody can send a datagram.
    """

    job: str
    run_id: str
    node: int
    launcher: str  # a name that only this process has, so that others see when it was started again
    address: str  # where the node is now
    generation: Optional[str]  # the one that it knows
    begun: bool  # whether its processes have begun in it
    done: Set[int]  # the nodes of which it knows that they are done with it
    age: Tuple[float, int, str, int]  # of its order, see control.age
    tick: str  # its newest tick, to be answered
    answer: Optional[str] = None  # the newest tick that it has heard from the receiver in this generation
    knows: Optional[str] = None  # the receiver's launcher that it has met in this generation
    order: Optional[OrderNews] = None  # what its order has, if that is newer than the receiver's
    failed: Optional[Tuple[str, float]] = None  # how its node has failed in this generation, and when
    headway: Optional[Headway] = None  # how far this generation has come, as the sender knows

    def to_json(self) -> Json:
        """Return its JSON form."""
        data = {**vars(self), "done": sorted(self.done), "who": self.launcher}
        del data["launcher"]
        for name in ("order", "headway"):
            del data[name]
        if self.headway is not None:
            data["headway"] = self.headway.to_json()
        return data if self.order is None else {**data, "order": self.order.to_json()}

    @classmethod
    def from_json(cls, data: Json) -> GossipMessage:
        """Return the message that `to_json` has written."""
        began, number, rendezvous, command = data["age"]  # nobody but launchers begins a generation in a cluster
        failed = data.get("failed")
        # Earlier versions say only whether it has failed.
        kind, at = failed if isinstance(failed, list) else (None, 0.0)
        return cls(
            job=data["job"],
            run_id=data["run_id"],
            node=int(data["node"]),
            launcher=str(data["who"]),
            address=str(data["address"]),
            generation=data["generation"],
            begun=bool(data["begun"]),
            done={int(node) for node in data["done"]},
            age=(float(began), int(number), str(rendezvous), int(command)),
            tick=str(data["tick"]),
            answer=data["answer"],
            knows=data["knows"],
            order=OrderNews.from_json(data["order"]) if data.get("order") else None,
            failed=(str(kind), float(at)) if kind is not None else None,
            headway=Headway.from_json(data["headway"]) if data.get("headway") else None,
        )
