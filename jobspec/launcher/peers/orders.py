"""The generations that launchers begin by themselves, where no supervisor does. docs/protocol.md has the rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.lease import SILENT_TICKS, TICK
from jobctl.jobspec.launcher.peers.old_places import OldPlaces
from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.restart_policy import cause_of
from jobctl.jobspec.launcher.system.files import note
from jobctl.jobspec.launcher.system.processes import boot_time

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.order.autonomy_terms import HotSpare
    from jobctl.jobspec.launcher.order.order_news import OrderNews
    from jobctl.jobspec.launcher.peers.incarnations import Incarnation, Incarnations
    from jobctl.jobspec.launcher.peers.lease import MajorityLease
    from jobctl.jobspec.launcher.peers.messages import PeerMessage
LEFT_ALONE = "leaves it to the supervisor"
NEWS = 64_000  # bytes of news that a datagram has room for, beside all else that a message says


@record
class PeerOrder:
    """What another launcher of the generation has said last: when, in which order it is, and the tick that it sent."""

    at: float
    age: List[Any]
    tick: str
    begun: bool = False  # whether its node has begun in this lease
    paces: Optional[Dict[int, float]] = None  # how long its processes need by themselves in each step, by their ranks
    failed: Optional[Tuple[str, float]] = None  # how its node has failed in that order, and when
    incarnation: Optional[Incarnation] = None  # which launcher of its node it is, where that matters


@record
class PeerSpare:
    """An idle launcher that was heard: when, the address of its socket, and the tick that it sent."""

    at: float
    socket: Any
    generation: str
    tick: str
    age: List[Any]


class PeerOrders:
    """The order that this launcher follows, and in which orders the others are.

    Launchers begin a generation of the same members on the same hosts. It goes on with the lease of its base, so where a
    node may run stays as it is: a node whose lease is over takes part in none of them. They pass it on with their
    answers. A generation that moves a node to a hot spare has a lease of its own, in which those that have moved do not
    count. It is passed on to all launchers that go back to the same base.

    `incarnations` are where launchers may be started again without what they kept.
    """

    def __init__(
        self, lease: MajorityLease, explain: Callable[[str], None], incarnations: Optional[Incarnations] = None
    ) -> None:
        self.lease, self.explain, self.incarnations = lease, explain, incarnations
        self.order: Optional[Order] = None
        self.heard: Dict[int, PeerOrder] = {}
        self.on_adopted: Callable[[], None] = lambda: None  # called with each new order of launchers
        self.said: Optional[str] = None
        self.failed: Callable[[], Optional[Tuple[str, float]]] = lambda: None  # how this node has failed in the order
        self.own: Callable[[], Headway] = Headway  # how far this node has come in the order
        self.told: Dict[str, Headway] = {}  # how far the order has come as others have said; its id
        self.places = OldPlaces(boot_time())
        self.spares: Dict[str, PeerSpare] = {}  # hosts whose idle launchers were heard
        self.told_news: Optional[Tuple[Order, Optional[OrderNews]]] = None  # see `news_of`, with its order

    def enter(self, order: Order) -> None:
        """Begin to follow an order with a lease of its own."""
        self.places.enter(order)
        moved, trainers = order.moved, [member.node for member in order.of_role("trainer")]
        clear = [node for node in trainers if node not in moved]
        if order.moves is not None and self.lease.me in moved:
            self.lease.begin_elsewhere(clear, int(order.moves.voters))
        if order.has_moved:
            self.lease.count_only(clear, len(trainers))

    def restore(self, order: Optional[Order], left: Sequence[int] = ()) -> None:
        """Take up the order of launchers that the launcher before this one has entered, and OldPlaces.left: both are on disk."""
        self.places.left |= set(left)
        self.order = order

    def follow(self, file: Optional[Order]) -> Optional[Order]:
        """Return the order to follow: that of the control file, or a later one of launchers that goes back to it."""
        mine = self.order
        if file is not None and (mine is None or mine.age <= file.age):
            self.order = file
        return self.order

    @property
    def age(self) -> Optional[List[Any]]:
        """How new the order is, as messages say it; None where launchers begin none, or this one takes part in none."""
        order = self.order
        return None if order is None or order.base is None or self.lease.validity.over else list(order.age)

    # What Autonomy asks for, as of a LeaseSession.

    def has_lease(self, now: float) -> bool:
        """Return whether this launcher has a lease."""
        return self.lease.held(now)

    @property
    def gone(self) -> Dict[int, float]:
        """The members that are not heard in this order, and for how many seconds."""
        now, order = boot_time(), self.order
        members = order.nodes if order is not None else []
        return {node: self.silence(node, now) for node in members if node != self.lease.me and not self.is_there(node)}

    @property
    def missing(self) -> Optional[str]:
        """What this launcher waits for before it may begin a generation of launchers, None for nothing."""
        gone = sorted(self.gone)
        return "waits for node %s, which is not heard" % ", ".join(map(str, gone)) if gone else None

    def awaited(self, order: Order) -> Optional[str]:
        """Return whom this node waits for, beside its lease, before it begins in an order; None for nobody."""
        known = self.incarnations
        if known is None:
            return self.missing if order.is_of_launchers else None
        others = [node for node in order.nodes if node != self.lease.me]
        entered = known.age == list(order.age)
        ready = [node for node in others if entered and self.is_there(node) and known.is_ready(node)]
        late = ", ".join(str(node) for node in others if node not in ready)
        return "waits for the launchers of all nodes (not there yet: node %s)" % late if late else None

    def located(self, order: Order) -> Order:
        """Return an order with the addresses that the launchers have now: a new pod has another one."""
        known = self.incarnations
        if known is None:
            return order
        said = {**known.addresses, self.lease.me: known.address}
        return order.at({member.address: said.get(member.node, member.address) for member in order.members})

    @property
    def failed_first(self) -> Optional[int]:
        """The node whose failure is the cause of this one's, None if there is none."""
        found = {node: self.failure_of(node, heard) for node, heard in self.heard.items() if self.is_there(node)}
        return cause_of(self.failed(), {node: failed for node, failed in found.items() if failed}, self.lease.me)

    def failure_of(self, node: int, heard: PeerOrder) -> Optional[Tuple[str, float]]:
        """Return how another node has failed: also one whose launcher was started again, and does not know so yet."""
        return ("launcher", heard.at) if self.is_replaced(node) else heard.failed

    def is_replaced(self, node: int) -> bool:
        """Return whether the launcher of a node is not the one that this one has met in its order."""
        known, heard = self.incarnations, self.heard.get(node)
        return known is not None and heard is not None and known.is_another(node, heard.incarnation)

    def unheard_since(self, at: float) -> List[int]:
        """Return the other members that have not said how they are since then."""
        members = [node for node in (self.order.nodes if self.order is not None else []) if node != self.lease.me]
        return [node for node in members if node not in self.heard or self.heard[node].at < at]

    @property
    def headway(self) -> Headway:
        """How far the order has come, as far as is known here."""
        told = self.told.get(self.order.id) if self.order is not None else None
        return self.own().furthest(told or Headway())

    def hear_headway(self, age: Optional[List[Any]], headway: Optional[Headway]) -> None:
        """Take note of how far the order of this age has come, as another launcher says: also after that is gone."""
        if self.order is not None and headway is not None and age is not None and age == self.age:
            self.told = {self.order.id: headway.furthest(self.told.get(self.order.id, Headway()))}

    def propose(self, order: Order, after: Optional[str] = None) -> None:
        """Begin `order` if the generation `after` still runs here."""
        mine = self.order
        if mine is not None and mine.id == after and (mine.command == "run" or mine.is_paused):
            self.adopt(order)

    def say_once(self, text: str) -> None:
        """Say what this launcher waits for, in its own log and in its report, once; nothing where it never decides."""
        order = self.order
        decides = order is not None and order.autonomy is not None and (order.command == "run" or order.is_paused)
        if text != self.said and text != LEFT_ALONE and decides:
            self.said = text
            note(text)
            self.explain(text)

    # The other launchers.

    def hear(self, node: int, tick: str, order: Optional[List[Any]], **more: Any) -> None:
        """Take over in which order another launcher is; one does not say so whose lease is over, or of an older version.

        `more` are further fields of PeerOrder.
        """
        if order is None:
            self.heard.pop(node, None)
        else:
            heard = self.heard[node] = PeerOrder(boot_time(), list(order), tick, **more)
            known = self.incarnations
            if known is not None and heard.incarnation is not None and heard.age == known.age:
                known.hear(node, heard.incarnation, list(self.lease.heard), heard.at)

    def hear_spare(self, message: PeerMessage, socket: Any) -> None:
        """Take note of an idle launcher."""
        if message.spare and message.generation and message.tick and message.age is not None:
            heard = PeerSpare(boot_time(), socket, message.generation, message.tick, list(message.age))
            self.spares[message.spare] = heard

    @property
    def ready_spares(self) -> List[HotSpare]:
        """The hosts of the idle launchers of the order that were heard a moment ago, in the same order."""
        terms, now, age = self.order.autonomy if self.order is not None else None, boot_time(), self.age
        found = []
        for spare in terms.spares if terms is not None else ():
            heard = self.spares.get(spare.host)
            if heard is not None and now - heard.at <= SILENT_TICKS * TICK and heard.age == age:
                found.append(spare)
        return found

    def is_there(self, node: int) -> bool:
        """Return whether another launcher was heard a moment ago, in the same order."""
        heard = self.heard.get(node)
        if heard is None or self.order is None or boot_time() - heard.at > SILENT_TICKS * TICK:
            return False
        return heard.age == self.age

    def is_silent(self, node: int) -> bool:
        """Return whether another launcher was not heard for a while, in whatever order."""
        heard = self.heard.get(node)
        return heard is None or boot_time() - heard.at > SILENT_TICKS * TICK

    def silence(self, node: int, now: float) -> float:
        """Return for how many seconds a launcher was not heard."""
        heard = self.heard.get(node)
        return now - (heard.at if heard is not None else self.lease.began)

    def news(self, known: Optional[List[Any]]) -> Optional[OrderNews]:
        """Return what a launcher does not know that is in the order `known`, None if that is nothing."""
        order = self.order
        if order is None or known is None or not order.is_of_launchers or list(order.age) <= known:
            return None
        same_base = list(order.age)[:3] == known[:3]
        return self.news_of(order) if same_base else None

    def news_of(self, order: Order) -> Optional[OrderNews]:
        """Return what is new in an order; None where a datagram has no room for that: of many nodes, once launchers have moved one."""
        if self.told_news is None or self.told_news[0] is not order:
            news = order.news()
            self.told_news = order, news if len(json.dumps(news.to_json())) <= NEWS else None
        return self.told_news[1]

    def lacks(self, age: List[Any]) -> bool:
        """Return whether a launcher of the same job that is in an order of this age has a newer one than this launcher."""
        order = self.order
        return order is not None and list(order.age)[:1] == age[:1] and list(order.age) < age

    def whole(self, known: Optional[List[Any]]) -> Optional[Order]:
        """Return the order of a supervisor or a command that launchers in the order `known` have not received, if it is newer.

        Also one of launchers that goes back to such an order: `news` is for those who have its base, as long as it fits.
        """
        order = self.order
        if order is None or known is None or list(order.age)[:1] != known[:1] or list(order.age) <= known:
            return None
        has_base = list(order.age)[:3] == known[:3]
        return None if has_base and order.is_of_launchers and self.news_of(order) is not None else order

    def take_whole(self, order: Optional[Order]) -> None:
        """Go over to an order that another launcher has handed on, if it is a newer one of this job since it was brought up."""
        mine = self.order
        if mine is None or order is None or (order.job, order.began) != (mine.job, mine.began):
            return
        if list(order.age) > list(mine.age):
            self.adopt(order)

    def take(self, news: OrderNews, of: Optional[List[Any]] = None) -> None:
        """Go over to the order of another launcher of the same base, if it is newer. Raises KeyError and similar errors.

        `of` is how new an order of that base is: this launcher may have gone over to another one since its tick.
        """
        mine = self.order
        if mine is not None and of is not None and list(mine.age)[:3] != of[:3]:
            return
        ends = news.order["command"] != "run" and news.order.get("why") is not None  # launchers have ended the job
        follows = mine is not None and (mine.command == "run" or mine.is_paused)
        if mine is not None and follows and (ends or news.order["command"] == "run"):
            newer = mine.with_news(news)
            if list(newer.age) > list(mine.age):
                self.adopt(newer)

    def adopt(self, order: Order) -> None:
        """Follow a generation of launchers."""
        self.order, self.said = order, None
        self.on_adopted()
