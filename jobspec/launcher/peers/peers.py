"""Heartbeats: datagrams between the launchers of a generation, and lines for the supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.whole_order import OrderPart, OrderParts, divided, hands_on, packed, sum_of, unpacked
from jobctl.jobspec.launcher.peers.addresses import PeerAddresses
from jobctl.jobspec.launcher.peers.done_nodes import DoneNodes
from jobctl.jobspec.launcher.peers.lease import FIRST_TICKS, TICK, MajorityLease, take_answer
from jobctl.jobspec.launcher.peers.messages import Heartbeat, PeerMessage, StacksMessage
from jobctl.jobspec.launcher.peers.stack_barrier import BARRIER, StackBarrier
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.system.files import files_in, read_json
from jobctl.jobspec.launcher.system.network import DATAGRAM, is_cut, select_pipe_size
from jobctl.jobspec.launcher.system.processes import boot_time

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from jobctl.jobspec.launcher.node.agent import Launcher
    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.system.files import Json
NO_LEASE = "none"  # the name of the lease of a launcher that has never asked for one
MAX_DATAGRAM_BYTES = 65536  # bytes of a datagram
# What a datagram may lead to that no launcher has sent. Anybody can send anything here: an infinite number of a node
# overflows, and what is nested deep exhausts the stack, as it is parsed or where a message repeats it.
FROM_STRANGERS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class PeerLinks:
    """The launcher's links to the other launchers of its generation, and to the supervisor.

    Launchers send each other ticks and answers as datagrams. Each command that watches the job on this host makes a
    pipe in `run/feeds`; the launcher writes its ticks there as lines. The supervisor answers in a file: on hosts in
    `run/answers`, where nothing in a container writes, on this machine and in earlier versions in `answer` of the node's folder.
    """

    def __init__(self, launcher: Launcher, feeds: str, names: Optional[str] = None) -> None:
        self.launcher, self.lease, self.feeds = launcher, launcher.lease, feeds
        # Ticks of other launchers, and their answers, matter where these renew the lease.
        self.majority = launcher.lease if isinstance(launcher.lease, MajorityLease) else None
        self.orders = launcher.peer_orders
        if self.orders is not None:
            self.orders.on_adopted = self.pass_on
        self.answers = os.path.join(os.path.dirname(feeds), "answers")
        self.cut = os.path.join(os.path.dirname(feeds), "cut")
        self.incarnations = self.orders.incarnations if self.orders is not None else None
        if self.incarnations is None:
            last = (read_json(os.path.join(launcher.dir, "report.json")) or {}).get("port")
            self.addresses = PeerAddresses.at_all_addresses(launcher.launch.node, last)
        else:
            own, port = self.incarnations.address, int(launcher.launch.peer_port or 0)
            self.addresses = PeerAddresses.by_names(launcher.launch.node, own, port, names)
        self.next = 0.0
        self.last: Optional[str] = None  # the newest tick in this generation
        self.done = DoneNodes(self)
        self.hung: Dict[int, int] = {}  # how far other nodes are with their stacks, see StackBarrier
        self.level = 0  # how far this one is
        self.limit: Optional[float] = None  # after how many seconds another node has called this generation hung
        self.shown = -BARRIER  # when this one has written its stacks, and gone on
        self.echo: Optional[str] = None  # what the supervisor last said beside an answer: that we have heard it by then
        self.version = 0  # of the report
        self.parts = OrderParts()  # of an order that another launcher hands on
        self.handed: Optional[Tuple[Order, str]] = None  # the order that this one has handed on, and its text
        self.greeted: Optional[str] = None  # the lease whose launchers hear of this one, if it is idle

    @property
    def socket(self) -> Any:
        """The socket at which the others hear this launcher, None where there is none."""
        return self.addresses.socket

    @property
    def peers(self) -> Dict[int, Any]:
        """The addresses of the sockets of other launchers, by node."""
        return self.addresses.known

    def meet(self, order: Order) -> None:
        """Look up the addresses of the launchers of a new generation."""
        self.last, self.echo = None, None
        self.begin_generation()
        if self.orders is not None:
            self.orders.enter(order)
            self.launcher.report.fields.left = sorted(self.orders.places.left)
        self.addresses.meet(order)

    def greet(self, order: Order) -> None:
        """Tell the launchers of an order from now on that this one is there, idle."""
        self.greeted, self.next = order.lease, 0.0
        self.addresses.meet(order)

    def begin_generation(self) -> None:
        """Forget what launchers have said in the last generation. They may be the same ones."""
        self.next = 0.0
        self.done.begin_generation()
        self.hung, self.level, self.limit = {}, 0, None

    def wait(self, seconds: float) -> None:
        """Return when something may have come, or after `seconds`."""
        if self.socket is None:
            time.sleep(seconds)
            return
        import select

        session = self.launcher.session
        with contextlib.suppress(InterruptedError):
            select.select([self.socket, *([session.pipe.socket] if session else [])], [], [], seconds)

    def report_changed(self) -> None:
        """Tell at once."""
        self.version += 1
        self.next = 0.0

    def attend(self) -> None:
        """Read what has come, answer it, and send a tick if it is time for one."""
        self.lease.held(boot_time())  # what is over is not saved by an answer that comes just now
        if self.launcher.session is not None:
            self.launcher.session.read()
        if is_cut(self.cut):
            self.lose_datagrams()
            return
        self.read_answer()
        known, before = self.incarnations, self.incarnations and self.incarnations.met
        self.read_datagrams()
        if known is not None and known.met != before:
            self.next = 0.0  # the others may begin once they hear that
        now = boot_time()
        if now < self.next:
            return
        waits = self.launcher.pending is not None or self.launcher.recovery.settles(now)
        self.next = now + (FIRST_TICKS if waits else TICK)
        name = self.last = self.lease.tick(now)
        self.addresses.look(self.orders)
        if self.lease.generation is not None and self.majority is not None:
            run, failed = self.launcher.current_run, self.launcher.recovery.failed
            paces = run.paces_of_ranks() if run is not None else None
            begun, told = self.majority.validity.had, self.launcher.recovery.teller.mention()
            tick = self.message(tick=name, begun=begun, paces=paces, failed=failed, told=told)
            for node, peer in self.peers.items():
                self.send(self.introduced(tick, node), peer)
        if self.greeted is not None:
            for peer in self.peers.values():
                idle = self.message(tick=name, spare=self.launcher.launch.host)
                self.send(changed(idle, generation=self.greeted, node=self.launcher.launch.node), peer)
        self.write_line(name, now)

    def lose_datagrams(self) -> None:
        """Forget what has come, as a cut cable does."""
        with contextlib.suppress(OSError):
            while self.socket is not None:
                self.socket.recv(DATAGRAM)

    def read_answer(self) -> None:
        """Read the supervisor's last answer: the tick's name, and something to repeat."""
        text = read_answer(os.path.join(self.answers, str(self.launcher.launch.node)))
        text = text or read_answer(os.path.join(self.launcher.dir, "answer"))
        if text.endswith("\n") and len(text.split()) == 2:  # else it is being written just now
            name, echo = text.split()
            if take_answer(self.lease, name, echo):
                before, self.echo = self.echo, echo
                if self.orders is not None and echo != before:
                    self.orders.places.note_supervisor(echo.partition(":")[0], boot_time())

    def read_datagrams(self) -> None:
        """Read and answer what other launchers have sent."""
        while self.socket is not None:
            try:
                data, sender = self.socket.recvfrom(MAX_DATAGRAM_BYTES)
            except OSError:
                return
            with contextlib.suppress(*FROM_STRANGERS):
                self.hear(PeerMessage.from_json(json.loads(data.decode())), sender)

    def hear(self, message: PeerMessage, sender: Any) -> None:
        """Take over what another launcher says. `sender` is the address of its socket."""
        node = message.node
        if message.generation == self.lease.generation:
            self.launcher.recovery.teller.hear(message)
        if message.generation is None or self.hear_of_another(message, sender):
            return
        if message.done or message.heard:
            self.done.hear(message, sender)
        elif message.stacks is not None:
            if message.age == self.message().age:
                self.hear_stacks(message.stacks, node)
        elif self.majority is None or self.orders is None:
            return
        elif message.answer is not None:
            if self.majority.answered(message.answer, node):
                self.orders.hear_headway(message.age, message.headway)
                if message.news is not None:
                    self.orders.take(message.news, message.age)
        elif message.tick is None or not self.orders.places.is_clear(node, boot_time()):
            return
        elif self.majority.asked(message.generation, node, boot_time()):
            self.orders.places.note_answer(node, boot_time())
            self.peers[node] = sender  # it may have been started again, at another port
            more = {"begun": message.begun, "paces": message.paces, "failed": message.failed}
            self.orders.hear(node, message.tick, message.age, incarnation=message.incarnation, **more)
            self.orders.hear_headway(message.age, message.headway)
            self.send(self.message(answer=message.tick, news=self.orders.news(message.age)), sender)
            self.hand_on(message.generation, message.tick, message.age, sender)
            # The other one may not have run yet when that tick was sent. Only a launcher that misses an answer asks, so
            # two launchers do not ask each other for ever.
            if self.launcher.pending is not None and self.last is not None and self.majority.misses(node):
                self.send(self.introduced(self.message(tick=self.last), node), sender)

    def hear_of_another(self, message: PeerMessage, sender: Any) -> bool:
        """Take over what a launcher of another lease says, or an idle one; return whether it is of one of these.

        Launchers that move a node begin another lease. The others learn of it as their ticks arrive; these are not answered.
        """
        orders, known = self.orders, message.generation == self.lease.generation
        if orders is None or message.age is None:
            return not known
        if message.about is not None:
            if self.majority is not None and message.about in self.majority.ticks.sent:
                whole = self.parts.add(message.order or "", message.part)
                orders.take_whole(unpacked(whole) if whole else None)
                if message.news is not None:
                    orders.take(message.news, message.age)
            return True
        if message.tick is None or (known and message.spare is None):
            return not known
        orders.hear_spare(message, sender)
        if orders.lacks(message.age) and orders.order is not None:  # ask: only what names a tick of this one is taken
            asks = PeerMessage(self.lease.generation or NO_LEASE, self.launcher.launch.node, tick=self.last)
            self.send(changed(asks, age=list(orders.order.age)), sender)
        self.tell(message.generation, message.tick, message.age, sender)
        return True

    def tell(self, generation: Optional[str], tick: str, age: List[Any], to: Any) -> None:
        """Tell a launcher of another lease what it does not know of this one's order, if it goes back to the same base."""
        news = self.orders.news(age) if self.orders is not None else None
        if news is not None:
            self.send(PeerMessage(generation, self.lease.me, about=tick, news=news, age=age), to)
        self.hand_on(generation, tick, age, to)

    def hand_on(self, generation: Optional[str], tick: str, age: Optional[List[Any]], to: Any) -> None:
        """Give a launcher the order of a supervisor or a command that it has not received, whole."""
        order = self.orders.whole(age) if self.orders is not None else None
        if order is None or not hands_on(tick, self.lease.me, len(order.members)):
            return
        if self.handed is None or self.handed[0] is not order:
            self.handed = order, packed(order)
        texts = divided(self.handed[1])
        for place, text in enumerate(texts):
            part = OrderPart(place, len(texts), sum_of(self.handed[1])) if len(texts) > 1 else None
            self.send(PeerMessage(generation, self.lease.me, about=tick, order=text, part=part, age=age), to)

    def message(self, **fields: Any) -> PeerMessage:
        """Return a message of this launcher. Those that launchers begin orders by say how far theirs has come."""
        orders, tells = self.orders, "tick" in fields or "answer" in fields
        age = age_of_entered(self.launcher)
        headway = orders.headway if orders is not None and age is not None and tells else None
        return PeerMessage(self.lease.generation, self.lease.me, age=age, headway=headway, **fields)

    def introduced(self, message: PeerMessage, node: int) -> PeerMessage:
        """Return a message to the launcher of a node that names this launcher, where that matters."""
        known = self.incarnations
        return message if known is None else changed(message, incarnation=known.introduce(node))

    def pass_on(self) -> None:
        """Tell all launchers that are in an older order of this one's, beside another answer to their last ticks."""
        orders = self.orders
        for node, heard in orders.heard.items() if orders is not None else ():
            with contextlib.suppress(*FROM_STRANGERS):
                news = orders.news(heard.age) if orders is not None else None
                if news is None or node not in self.peers:
                    continue
                if orders is not None and orders.order is not None and orders.order.lease != self.lease.generation:
                    self.tell(self.lease.generation, heard.tick, heard.age, self.peers[node])
                else:
                    self.send(self.message(answer=heard.tick, news=news), self.peers[node])
        for spare in orders.spares.values() if orders is not None else ():
            with contextlib.suppress(*FROM_STRANGERS):
                self.tell(spare.generation, spare.tick, spare.age, spare.socket)

    def hear_stacks(self, stacks: StacksMessage, node: int) -> None:
        """Note how far another node is with its stacks. If it asks, answer, and make this node write its own."""
        self.hung[node] = stacks.level
        if not stacks.asks:
            return
        there = not self.launcher.watcher.may_hang(stacks.limit) or time.monotonic() - self.shown < BARRIER
        level = StackBarrier.WRITTEN if there else self.level
        if level == 0:
            self.limit = stacks.limit
        self.say_stacks({node}, StacksMessage(level, stacks.limit, asks=False))

    def say_stacks(self, nodes: Set[int], stacks: StacksMessage) -> None:
        """Tell the launchers of `nodes` how far this one is with its stacks."""
        for node in nodes & set(self.peers):
            self.send(self.message(stacks=stacks), self.peers[node])

    def send(self, message: PeerMessage, to: Any) -> None:
        """Send a datagram; one that is lost is like one that was never sent."""
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.sendto(json.dumps(message.to_json()).encode(), to)

    def write_line(self, name: str, now: float) -> None:
        """Write one line for each command that watches, whole or not at all."""
        report = self.launcher.report.fields
        line = Heartbeat(
            node=self.launcher.launch.node,
            tick=name,
            generation=self.lease.generation,
            report="%d.%d" % (self.launcher.guard, self.version),
            progress=report.progress,
            echo=self.echo,
            unheard=self.lease.unheard(now),
            clear=self.orders.places.clear_of(now) if self.orders is not None else None,
            kept=self.orders.places.kept(now) if self.orders is not None else None,
            paces=self.launcher.current_run.paces() if self.launcher.current_run is not None else None,
        )
        data = one_line(line.to_json())
        if len(data) > select_pipe_size():
            line.unheard = None
            data = one_line(line.to_json())
        for path in files_in(self.feeds):
            with contextlib.suppress(OSError):  # nobody reads it any more, or does not keep up
                handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.write(handle, data)
                finally:
                    os.close(handle)


def read_answer(path: str) -> str:
    """Return what a file with an answer of the supervisor says, nothing where there is none."""
    try:
        with open(path) as file:
            return file.read(200)
    except (OSError, ValueError):
        return ""


def one_line(data: Json) -> bytes:
    """Return a line of JSON."""
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def age_of_entered(launcher: Launcher) -> Optional[List[Any]]:
    """Return how new the order is that a launcher is in, for its messages: it is in no next one before what ran has ended.

    The others begin as soon as all are in it, and their processes could meet those of the last one, at the same ports.
    """
    orders, entered = launcher.peer_orders, launcher.entered
    if orders is None:
        return None
    age, newest = orders.age, orders.order
    if age is not None and newest is not None and entered is not None and launcher.busy:
        age = list(entered.age) if newest.is_of_launchers and newest.id != entered.id else age
    if orders.incarnations is not None:
        orders.incarnations.enter(age)
    return age
