"""The datagrams of launchers to each other, and the lines that they write for the supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.order_news import OrderNews
from jobctl.jobspec.launcher.order.whole_order import OrderPart
from jobctl.jobspec.launcher.peers.incarnations import Incarnation
from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.report.progress import Headway

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from jobctl.jobspec.launcher.system.files import Json


@record
class StacksMessage:
    """How far a launcher is with the stacks of its processes, see StackBarrier."""

    level: int
    limit: float  # after how many seconds without progress it calls the generation hung
    asks: bool  # whether the receiver is to write its own, and answer


@record
class PeerMessage:
    """What one launcher tells another one of its generation: one of these at a time.

    `from_json` raises AttributeError, KeyError, OverflowError, RecursionError, TypeError or ValueError for what no launcher
    has sent: anybody can send a datagram.
    """

    generation: Optional[str]
    node: int
    tick: Optional[str] = None  # to be answered
    answer: Optional[str] = None  # the tick that this answers
    done: bool = False  # this node is done with the generation
    heard: bool = False  # the answer to that
    stacks: Optional[StacksMessage] = None
    age: Optional[List[Any]] = None  # of the sender's order, see control.age
    news: Optional[OrderNews] = None  # beside an answer: what the sender's order has that the receiver does not know
    about: Optional[str] = None  # the tick because of which it tells `news` of another lease, without answering it
    order: Optional[str] = None  # instead of `news`: a whole order, see whole_order.py; or …
    part: Optional[OrderPart] = None  # … a part of one that is too long for a datagram
    spare: Optional[str] = None  # beside a tick: the host of the idle launcher that sends it
    begun: bool = False  # beside a tick: the node has begun in this lease
    paces: Optional[Dict[int, float]] = None  # beside a tick: see Run.paces_of_ranks
    failed: Optional[Tuple[str, float]] = None  # beside a tick: how its node has failed in this order (kind), and when
    told: Optional[List[List[str]]] = None  # beside a tick: what launchers have told people, see telling.mentioned
    headway: Optional[Headway] = None  # beside a tick or an answer: how far this order has come, as the sender knows
    incarnation: Optional[Incarnation] = None  # beside a tick, where launchers may forget

    def to_json(self) -> Json:
        """Return it without what is not set."""
        apart = ("stacks", "news", "part", "headway", "incarnation")
        data = {name: value for name, value in vars(self).items() if value and name not in apart}
        data["node"] = self.node
        if self.headway is not None:
            data["headway"] = self.headway.to_json()
        if self.incarnation is not None:
            data["incarnation"] = dict(vars(self.incarnation))
        if self.news is not None:
            data["news"] = self.news.to_json()
        if self.part is not None:
            data["part"] = [self.part.place, self.part.of, self.part.sum]
        if self.stacks is not None:
            data.update(hung=self.stacks.level, limit=self.stacks.limit, asks=self.stacks.asks)
        return data

    @classmethod
    def from_json(cls, data: Json) -> PeerMessage:
        """Return the message that `to_json` has written."""
        stacks = None
        if "hung" in data:
            stacks = StacksMessage(int(data["hung"]), float(data["limit"]), bool(data["asks"]))
        kind, at = data.get("failed") or ("", 0.0)
        return cls(
            generation=data["generation"],
            node=int(data["node"]),
            tick=data.get("tick"),
            answer=data.get("answer"),
            done=bool(data.get("done")),
            heard=bool(data.get("heard")),
            stacks=stacks,
            age=data.get("age"),
            news=OrderNews.from_json(data["news"]) if data.get("news") else None,
            about=data.get("about"),
            order=data.get("order"),
            part=OrderPart(*map(int, data["part"])) if data.get("part") else None,
            spare=data.get("spare"),
            begun=bool(data.get("begun")),
            paces={int(rank): float(seconds) for rank, seconds in (data.get("paces") or {}).items()} or None,
            failed=(str(kind), float(at)) if kind else None,
            told=[[str(word) for word in one] for one in data.get("told") or ()] or None,
            headway=Headway.from_json(data["headway"]) if data.get("headway") else None,
            incarnation=Incarnation(**data["incarnation"]) if data.get("incarnation") else None,
        )


@record
class Heartbeat:
    """The line that the launcher writes for the commands that watch the job on this host, with each tick."""

    node: int
    tick: str
    generation: Optional[str]
    report: str  # grows with each change of the report
    progress: Optional[int]  # the node's last step
    echo: Optional[str]  # the word that the supervisor sent with its last answer, so that it knows what was heard
    unheard: Optional[Dict[int, float]]  # see Lease.unheard; None where these are too many for one line
    clear: Optional[List[int]] = (
        None  # moved nodes that this launcher keeps alive nowhere else; None where none has moved
    )
    paces: Optional[Dict[int, float]] = None  # see Run.paces
    kept: Optional[List[int]] = None  # see OldPlaces.kept

    def to_json(self) -> Json:
        """Return its JSON form, which jobctl reads (deploy/model/tick.py)."""
        ages = self.unheard
        unheard = None if ages is None else {str(node): round(age, 3) for node, age in ages.items()}
        data = {**vars(self), "unheard": unheard}
        if self.clear is None:
            data.pop("clear", None)
        for name in ("paces", "kept"):
            if not data.get(name):
                data.pop(name, None)
        return data
