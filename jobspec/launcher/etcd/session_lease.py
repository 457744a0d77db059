"""The lease that another process of the launcher keeps in etcd."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.etcd.client import ETCD_TIMEOUT
from jobctl.jobspec.launcher.etcd.session_messages import NodeCourse, SessionReport, SessionRequest
from jobctl.jobspec.launcher.peers.lease import UNSUPERVISED, Ticks, Validity
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.restart_policy import cause_of
from jobctl.jobspec.launcher.system.files import note
from jobctl.jobspec.launcher.system.pipe import MessagePipe
from jobctl.jobspec.launcher.system.processes import boot_time

if TYPE_CHECKING:
    import socket
    from typing import Callable, Dict, List, Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.order.order import Order
ALL_TOLD = 3.0  # seconds after which all launchers know what each of them has in etcd
TERMINATED = 2.0  # seconds between the end of a lease here and in etcd: processes are to be killed, clocks drift


class LeaseSession:
    """The launcher's end of the pipe to its EtcdSession: what that reports, and what it is asked for.

    That is a process of its own, as etcd and the network may be slow. It knows the newest generation of the job
    (`order`) and which members have no lease (`gone`, and for how many seconds). `lost` means that it has ended.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.pipe = MessagePipe(channel)
        self.order: Optional[Order] = None
        self.first = True  # whether it has reported no generation yet
        self.at: Optional[float] = None  # from when on the lease counts
        self.agreed: Optional[str] = None  # the generation that etcd has
        self.granted: Optional[float] = None  # for how many seconds a renewal counts, None before the first report
        self.gone: Dict[int, float] = {}
        self.problem: Optional[str] = None
        self.said: Optional[str] = None
        self.lost = False
        self.told: Optional[NodeCourse] = None  # what etcd was told of this node
        self.node: Optional[int] = None  # whose lease it is, where that was said
        self.spares: Sequence[str] = ()  # hosts with an idle launcher, as etcd knows them
        self.courses: Dict[int, NodeCourse] = {}  # how nodes do in the generation, once one has failed
        self.known = False  # whether etcd has said what it has of the job
        self.ended: Optional[str] = None  # the id of its generation, if all nodes have ended well there, …
        self.done_at: Optional[float] = None  # … and since when that is known
        self.reached: Tuple[float, int] = (0.0, 0)  # the last generation that a launcher before this one began
        self.end: Optional[Order] = None  # the end of the job that was there before this launcher
        self.own: Callable[[], Headway] = Headway  # how far this node has come
        self.failed: Callable[[], Optional[Tuple[str, float]]] = lambda: None  # how this node has failed, and when
        self.on_over: Callable[[], None] = lambda: None  # called when the lease is over, as the node may run elsewhere

    def read(self) -> None:
        """Read what the process has reported."""
        for message in self.pipe.receive():
            self.hear(SessionReport.from_json(message))
        self.pipe.flush()
        self.lost = self.pipe.closed

    def hear(self, report: SessionReport) -> None:
        """Take over one report."""
        mine = self.node in (None, report.node)  # not one that was said before
        self.at, self.agreed, self.gone = report.at if mine else None, report.agreed, report.gone
        self.problem, self.spares = report.problem, report.spares
        self.granted, self.courses = report.ttl - TERMINATED, report.courses or {}
        self.known, self.ended = report.known, report.ended
        if self.problem:
            self.say_once(self.problem)
        if report.over:
            self.on_over()
        if report.order is not None:
            is_old = self.first and report.order.command == "finish"
            self.order, self.first = None if is_old else report.order, False
            if is_old and report.known and (self.end is None or self.end.age < report.order.age):
                self.end = report.order

    def was_begun(self, order: Order) -> bool:
        """Return whether a launcher of this node has begun a generation before this one was started: etcd had it then."""
        return order.command == "run" and (order.began, order.number) <= self.reached

    def counts(self, order: Order) -> bool:
        """Return whether an order of the control file or of etcd counts: not if the job has ended since.

        A launcher that is started again does nothing before etcd has said what has become of the generation that it ran.
        """
        is_over = self.end is not None and order.age <= self.end.age
        return not is_over and (self.known or not self.was_begun(order))

    @property
    def waits_to_know(self) -> bool:
        """Whether this launcher was started again, and etcd has not said yet what has become of the generation."""
        return not self.known and self.reached[1] > 0

    def has_lost(self, order: Order) -> bool:
        """Return whether etcd has nothing any more of a job of which this generation was begun."""
        return self.order is None and self.was_begun(order)

    def hear_end(self, order: Order) -> None:
        """Take note of the order that has ended the launcher before this one, and let etcd know."""
        self.end = order
        self.propose(order)

    def ask(self, request: SessionRequest) -> None:
        """Send a request."""
        self.pipe.send(request.to_json())

    def has_lease(self, now: float) -> bool:
        """Return whether there is a lease at all, whatever became of the one that the processes ran on."""
        return self.at is not None and self.granted is not None and now - self.at <= self.granted

    @property
    def missing(self) -> Optional[str]:
        """What this launcher waits for before it may begin a generation, None for nothing."""
        return "waits for node %s, which has no lease" % ", ".join(map(str, sorted(self.gone))) if self.gone else None

    @property
    def headway(self) -> Headway:
        """How far the generation has come, as far as is known here: all say so once a node has failed."""
        found = self.own()
        for course in self.courses.values():
            found = found.furthest(course.headway)
        return found

    def be(self, node: int) -> None:
        """Have the lease of another node kept from now on; NOBODY is an idle launcher."""
        self.node, self.at, self.told = node, None, None
        self.ask(SessionRequest(node=node))

    def release(self) -> None:
        """Give up the lease if the node is elsewhere, where its launcher waits until that is over, or if the job is over."""
        self.ask(SessionRequest(release=True))

    def tell_end(self, course: NodeCourse) -> None:
        """Have etcd tell the others how this node does, once one has ended: each time it is a write of etcd's."""
        last = self.told
        if last is None or changed(last, headway=course.headway) != course:
            self.told = course
            self.ask(SessionRequest(course=course))

    @property
    def failed_first(self) -> Optional[int]:
        """The node whose failure is the cause of this one's, None if there is none: as with PeerOrders."""
        found = {node: course.failed for node, course in self.courses.items() if course.failed is not None}
        return cause_of(self.failed(), found)

    def all_done(self, now: float) -> bool:
        """Say whether all nodes of the generation have ended well, for so long that etcd has told all launchers.

        Those of earlier versions know it by the keys of the others only.
        """
        if self.order is None or self.ended != self.order.id:
            self.done_at = None
        elif self.done_at is None:
            self.done_at = now
        return self.done_at is not None and now - self.done_at >= ALL_TOLD

    def unheard_since(self, at: float) -> List[int]:
        """Return the members that have not said how they do since a node has failed."""
        return [node for node in (self.order.nodes if self.order is not None else []) if node not in self.courses]

    def propose(self, order: Order, after: Optional[str] = None) -> None:
        """Propose `order` if it is newer than the job's; with `after`, only if that generation is the job's and runs."""
        self.ask(SessionRequest(proposal=order, after=after))

    def leave(self) -> None:
        """Give the lease back; takes as long as etcd takes to answer all that it is asked then, at most."""
        import select

        self.ask(SessionRequest(leave=True))
        until = time.monotonic() + 3 * ETCD_TIMEOUT  # to end the lease, to say who is left, and to remove what is left
        while not self.pipe.closed and time.monotonic() < until:
            select.select([self.pipe.socket], [], [], 0.1)
            self.pipe.receive()
            self.pipe.flush()

    def say_once(self, text: str) -> None:
        """Write a line to the launcher's own log, unless it is the same as the last one."""
        if text != self.said:
            self.said = text
            note(text)


class EtcdLease:
    """The lease that an EtcdSession keeps in etcd.

    Below the job's prefix there is `generation`, the newest order, and `nodes/N` for each node that has a launcher: a
    key that goes with that launcher's lease. Only its owner may run the node, on whatever host: etcd decides alone. The
    supervisor's answers do not renew this lease; they say that there is a supervisor to leave decisions to.
    """

    WAITS = "waits for its lease in etcd, and for the generation there"

    def __init__(self, session: LeaseSession) -> None:
        self.session, self.ticks, self.validity = session, Ticks(), Validity()
        self.generation: Optional[str] = None
        self.me = 0
        self.wanted = 0.0  # the timeout of the generation; etcd may have granted a shorter lease
        self.began = boot_time()
        self.supervisor: Optional[float] = None  # when the newest tick that it has answered was sent
        session.on_over = lambda: self.validity.lose()

    def begin(
        self,
        generation: Optional[str],
        nodes: Sequence[int],
        me: int,
        timeout: float,
        now: float,
        voters: Optional[Sequence[int]] = None,
    ) -> None:
        """Ask for the lease for a new generation; etcd knows its members."""
        self.generation, self.me = generation, me
        self.ticks, self.supervisor, self.validity = Ticks(), None, Validity()
        self.wanted, self.began = timeout, now

    def move_on(self, generation: str, nodes: Sequence[int], me: int, now: float) -> None:
        """Keep the lease for a new generation."""
        self.generation, self.me, self.began = generation, me, now

    @property
    def timeout(self) -> float:
        """For how many seconds a renewal counts."""
        granted = self.session.granted
        return self.wanted if granted is None else min(self.wanted, granted)

    def renewed(self) -> Optional[float]:
        """Return from when on the lease counts, None before the job has agreed on this generation."""
        return self.session.at if self.validity.had or self.session.agreed == self.generation else None

    def tick(self, now: float) -> str:
        """Return the name of a tick that the launcher sends to the supervisor now."""
        return self.ticks.add(now, self.timeout)

    def answered(self, name: str, by: Optional[int]) -> bool:
        """Note an answer of the supervisor's. Return whether the tick was one of our own."""
        at = self.ticks.sent.get(name)
        if at is not None and by is None:
            self.supervisor = max(at, self.supervisor or at)
        return at is not None

    def probed(self, name: str) -> bool:
        """Return whether the tick that the supervisor has answered was one of our own."""
        return name in self.ticks.sent

    def held(self, now: float) -> bool:
        """Return whether processes may run."""
        return self.validity.check(self.renewed(), self.timeout, now)

    def end(self) -> float:
        """Return until when processes may run if etcd does not answer any more."""
        return (self.renewed() or 0.0) + self.timeout

    def waits(self) -> str:
        """Return what the launcher waits for before processes may run."""
        problem = self.session.problem
        return "%s (%s)" % (self.WAITS, problem) if problem else self.WAITS

    def why_over(self) -> str:
        """Return why the processes may not go on."""
        return "its lease in etcd is over (%s)" % (self.session.problem or "%g s without an answer" % self.timeout)

    def unheard(self, now: float) -> Dict[int, float]:
        """Return the members that have no lease, and for how many seconds."""
        return self.session.gone

    def supervised(self, now: float) -> bool:
        """Return whether a supervisor decides: it has answered a moment ago, or has hardly had the time to."""
        return now - (self.supervisor or self.began) <= UNSUPERVISED
