"""The process that agrees with the launchers of a cluster on the generation, where there is no operator."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.files import read_json
from jobctl.jobspec.launcher.gossip_message import GossipMessage
from jobctl.jobspec.launcher.lease import FIRST_TICKS, TICK, MajorityLease
from jobctl.jobspec.launcher.order import Member, Order
from jobctl.jobspec.launcher.peer_orders import SILENT
from jobctl.jobspec.launcher.pipe import MessagePipe
from jobctl.jobspec.launcher.processes import SIGNALS, boot_time, die_with_parent
from jobctl.jobspec.launcher.progress import Headway
from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.session_lease import TERMINATED
from jobctl.jobspec.launcher.session_messages import GossipReport, NodeCourse, SessionReport, SessionRequest

if TYPE_CHECKING:
    import argparse
    from typing import Any, Dict, List, Optional, Set, Tuple

    from jobctl.jobspec.launcher.files import Json
    from jobctl.jobspec.launcher.launch import Launch


# In a cluster without an operator only the launchers take care of a job. Once a second each sends all others a datagram
# with the generation that it knows, and repeats their last ticks: these are answers, and those of a strict majority renew
# the lease. The newest generation wins (see `age`). It begins when all its members have been heard, so that each knows
# the launchers of the others. A launcher that then hears another launcher of the same node ends the generation.

HURRY = 0.5  # seconds for which all say more often how they are, once a node has failed: autonomy.SETTLE
LINGER = 1.5  # seconds for which a launcher that leaves goes on to say so


@record
class PeerState:
    """What another launcher has said in its last datagram."""

    said: GossipMessage
    sender: Any  # the address of its socket
    at: float  # when the datagram came

    def is_heard(self, now: float) -> bool:
        """Return whether that was a moment ago."""
        return now - self.at <= SILENT * TICK


class GossipMember:
    """Agrees with the launchers of the other nodes on the generation.

    It is a process of its own: the launcher sends it SessionRequests, and it sends SessionReports with a GossipReport.
    """

    def __init__(self, launch: Launch, options: argparse.Namespace, channel: socket.socket) -> None:
        assert launch.gossip_port is not None
        self.me, self.port = launch.node, launch.gossip_port
        self.address: str = options.address
        self.pipe = MessagePipe(channel)
        self.who = os.urandom(8).hex()
        self.socket = self.open()
        self.resolver = Resolver(self.socket.family, self.port, options.names)
        self.lease = MajorityLease()
        self.order: Optional[Order] = None
        self.changed = False
        self.peers: Dict[int, PeerState] = {}
        self.met: Dict[int, str] = {}  # the launcher of each member, in this generation
        self.agreed = self.begun = self.over = False
        self.again: Set[int] = set()
        self.done: Set[int] = set()
        self.failed: Dict[int, Tuple[str, float]] = {}  # how nodes have failed in this generation, and when, …
        self.hurries = 0.0  # … and until when all say more often how they are
        self.headway = Headway()  # of this generation, as all have said
        self.leaving: Optional[float] = None
        self.last: Optional[float] = None  # until when the generation before had its lease
        self.began = boot_time()
        self.following = 0.0  # when it says next how things are

    def open(self) -> socket.socket:
        """Return the socket at which the others hear this launcher."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        made.bind((self.address, self.port))
        made.setblocking(False)
        return made

    def run(self) -> int:
        """Agree until told to leave."""
        die_with_parent()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self.resolver.start()
        while self.turn():
            pass
        return 0

    def turn(self) -> bool:
        """Say how things are, if it is time, and hear what is new; return False when it is time to go."""
        import select

        now = boot_time()
        if now >= self.following:
            self.tell(now)
            self.say(now)
            self.following = now + self.pause(now)
        writing = [self.pipe.socket] if self.pipe.out else []
        select.select([self.socket, self.pipe.socket], writing, [], max(0.0, self.following - boot_time()))
        before = self.state()
        self.read()
        stays = self.listen()
        if self.state() != before:
            self.following = 0.0  # there is something new, for the launcher and for the others
        return stays and (self.leaving is None or boot_time() <= self.leaving)

    def pause(self, now: float) -> float:
        """Return how many seconds pass between two datagrams to another launcher."""
        settled = self.agreed and self.leaving is None and not self.done and now >= self.hurries
        return TICK if settled else FIRST_TICKS

    # The others.

    def others(self) -> List[Member]:
        """Return the other members."""
        return [m for m in self.order.members if m.node != self.me] if self.order else []

    def identity(self) -> Optional[str]:
        """Return what distinguishes the generation from all others: a job that is brought up again reuses ids."""
        order = self.order
        return "%s %d %s" % (order.began, order.number, order.id) if order else None

    @property
    def id(self) -> Optional[str]:
        """The generation's id, as the launcher knows it."""
        return self.order.id if self.order else None

    def tell(self, now: float) -> None:
        """Tell every other launcher how things are."""
        if self.order is None:
            return
        message = GossipMessage(
            job=self.order.job,
            run_id=self.order.run_id,
            node=self.me,
            launcher=self.who,
            address=self.address,
            generation=self.identity(),
            begun=self.begun,
            done=self.done,
            age=self.order.age,
            tick=self.lease.tick(now),
            failed=self.failed.get(self.me),
            headway=self.headway,
        )
        for member in self.others():
            peer = self.peers.get(member.node)
            to = peer.sender if peer and peer.is_heard(now) else self.resolver.find(member.address)
            if to is None:
                continue
            message.answer = peer.said.tick if peer and peer.said.generation == message.generation else None
            message.knows = self.met.get(member.node)
            message.order = None if peer and peer.said.age >= message.age else self.order.news()
            with contextlib.suppress(OSError):
                self.socket.sendto(json.dumps(message.to_json()).encode(), to)

    def read(self) -> None:
        """Read what the others have sent."""
        while True:
            try:
                data, sender = self.socket.recvfrom(65536)
            except OSError:
                break
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                message = GossipMessage.from_json(json.loads(data.decode()))
                self.hear(PeerState(message, sender, boot_time()))
        self.agree(boot_time())

    def state(self) -> Any:
        """Return the state whose changes this process reports at once, to the other launchers and to its own."""
        command = self.order and self.order.command
        return self.identity(), command, self.agreed, set(self.again), set(self.done), dict(self.failed)

    def hear(self, peer: PeerState) -> None:
        """Take over what another launcher says. Raises KeyError or a similar error if it has sent no proper order."""
        order, said = self.order, peer.said
        if order is None or (said.job, said.run_id) != (order.job, order.run_id):
            return
        if said.node not in [member.node for member in self.others()]:
            return
        self.peers[said.node] = peer
        if said.order is not None:
            self.adopt(order.with_news(said.order))
        if said.generation is None or said.generation != self.identity():
            return
        self.lease.asked(said.generation, said.node, peer.at)
        if said.answer:
            self.lease.answered(said.answer, said.node)
        self.done |= said.done
        self.follow(said.node, said.failed, said.headway or Headway())
        known = self.met.get(said.node)
        if known is None or not self.begun:
            self.met[said.node] = said.launcher
        elif known != said.launcher:
            self.again.add(said.node)

    def follow(self, node: int, failed: Optional[Tuple[str, float]], headway: Headway) -> None:
        """Take over whether a node has failed, and how far the generation has come."""
        if failed is None:
            self.failed.pop(node, None)  # its launcher was started again, and does not know
        else:
            if node not in self.failed:
                self.hurries = boot_time() + HURRY
            self.failed[node] = failed
        self.headway = self.headway.furthest(headway)

    def adopt(self, order: Order) -> None:
        """Adopt an order that is newer. The members of a new generation have to meet again."""
        if self.order is not None and order.age <= self.order.age:
            return
        before, self.order, self.changed = self.identity(), order, True
        if before != self.identity():
            self.last = self.renewed(boot_time())
            self.met, self.again, self.done = {}, set(), set()
            self.failed, self.headway = {}, Headway()
            self.agreed = self.begun = False
            self.began = boot_time()
            voters = [m.node for m in order.of_role("trainer")]
            self.lease.begin(self.identity(), order.nodes, self.me, order.host_timeout, boot_time(), voters)

    def agree(self, now: float) -> None:
        """Note when all members are ready for this generation, and none runs it with an earlier launcher of this node."""
        if self.order is None or self.agreed:
            return
        self.agreed = not self.missing(now)

    def missing(self, now: float) -> List[int]:
        """Return the members that have to be ready before this generation may begin."""
        return [m.node for m in self.others() if not self.is_there(self.peers.get(m.node), now)]

    def is_there(self, peer: Optional[PeerState], now: float) -> bool:
        """Return whether a member is ready for this generation, together with this launcher."""
        if peer is None or not peer.is_heard(now) or peer.said.generation != self.identity():
            return False
        return peer.said.knows == self.who or (peer.said.knows is None and not peer.said.begun)

    # The launcher.

    def listen(self) -> bool:
        """Read what the launcher says; return False when it is gone."""
        for message in self.pipe.receive():
            request = SessionRequest.from_json(message)
            if request.leave:
                self.leaving = boot_time() + LINGER
            if request.begun is not None:
                self.begun = self.begun or request.begun == self.id
            if request.done is not None and request.done == self.id:
                self.done.add(self.me)
            if request.course is not None and request.course.generation == self.id:
                self.follow(self.me, request.course.failed, request.course.headway)
            if request.proposal is not None:
                self.take(request.proposal, request.after)
        return not self.pipe.closed

    def take(self, order: Order, after: Optional[str]) -> None:
        """Go over to what the launcher proposes, if it follows what there is."""
        there = self.order
        if after is None or (there is not None and there.id == after and there.command == "run"):
            self.adopt(order)

    def say(self, now: float) -> None:
        """Tell the launcher how things are."""
        self.agree(now)
        self.pipe.flush()
        if self.pipe.out:
            return  # it hears nothing just now; what is said then is what is so then
        timeout = self.order.host_timeout if self.order else 30.0
        waited = self.missing(now) if not self.agreed else []
        addresses = {**{node: peer.said.address for node, peer in self.peers.items()}, self.me: self.address}
        done = self.all_done(now)
        report = SessionReport(
            at=self.renewed(now),
            agreed=self.id if self.agreed else None,
            gone={m.node: self.silence(m.node, now) for m in self.others() if self.is_silent(m, now)},
            ttl=timeout + TERMINATED,
            problem="not there yet: node %s" % ", ".join(map(str, waited)) if waited else None,
            gossip=GossipReport(sorted(self.again), self.done, done, addresses, self.headway, self.heard()),
            courses=self.courses() or None,
        )
        if self.changed:
            report.order, self.changed = self.order, False
        self.pipe.send(report.to_json())

    def heard(self) -> Dict[int, float]:
        """Return when the others were heard last in this generation, once a node has failed."""
        generation, peers = self.identity(), self.peers.items() if self.failed else ()
        return {node: peer.at for node, peer in peers if generation and peer.said.generation == generation}

    def courses(self) -> Dict[int, NodeCourse]:
        """Return how this node does in this generation, and how the others have said that they do, once one has failed."""
        if self.id is None or not self.failed:
            return {}
        nodes = [self.me, *self.heard()]
        return {node: NodeCourse(self.id, self.failed.get(node), self.headway, node in self.done) for node in nodes}

    def renewed(self, now: float) -> Optional[float]:
        """Return from when on the lease counts; the only trainer of a job has one always.

        Until most have answered in a generation, the lease of the previous one counts: this launcher may still have to end
        its processes, and it may begin before the first answer arrives, since all members are known to be ready.
        """
        found = now if self.lease.is_alone else self.lease.renewed()
        return self.last if found is None else found

    def silence(self, node: int, now: float) -> float:
        """Return for how many seconds a launcher was not heard."""
        peer = self.peers.get(node)
        return now - (peer.at if peer else self.began)

    def is_silent(self, member: Member, now: float) -> bool:
        """Say whether a member is called unheard."""
        return member.node not in self.peers or self.silence(member.node, now) > SILENT * TICK

    def all_done(self, now: float) -> bool:
        """Say whether all trainers are done, and everyone who is still there knows that this node is."""
        trainers = {m.node for m in self.order.of_role("trainer")} if self.order else set()
        if not self.done or not trainers <= self.done:
            return False
        known = {node for node, peer in self.peers.items() if self.me in peer.said.done}
        return all(self.is_silent(m, now) or m.node in known for m in self.others())


class Resolver:
    """Resolves the names of the members in a thread: a name server that does not answer must not delay the gossip.

    `path` is a JSON file of addresses and ports by name; the program that starts the launchers keeps it up to date. It
    comes first.
    """

    def __init__(self, family: int, port: int, path: Optional[str] = None) -> None:
        self.family, self.port, self.path = family, port, path
        self.wanted: Dict[str, Any] = {}
        self.written = self.read()

    def read(self) -> Json:
        """Return the addresses of the file."""
        return read_json(self.path) or {} if self.path else {}

    def find(self, name: str) -> Any:
        """Return the last address that is known of a name, None if there is none yet; the thread goes on to ask for it."""
        if name in self.written:
            address, port = self.written[name]
            return (address, port) if address else None
        return self.wanted.setdefault(name, None)

    def start(self) -> None:
        """Start the thread."""
        import threading

        threading.Thread(target=self.ask, daemon=True).start()

    def ask(self) -> None:
        """Ask for all names that `find` was asked for, once a second: pods that start again have new addresses."""
        while True:
            self.written = self.read() or self.written
            for name in list(self.wanted):
                with contextlib.suppress(OSError):
                    found = socket.getaddrinfo(name, self.port, self.family, socket.SOCK_DGRAM)
                    self.wanted[name] = found[0][4]
            time.sleep(TICK)
