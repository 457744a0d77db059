"""The process that keeps a node's lease in etcd, and the job's generation there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.etcd.client import Etcd, EtcdError, Quorum, of64, text64
from jobctl.jobspec.launcher.etcd.keys import JobKeys, failed_in, has_place, key_for, over_key, put_if, remove_rest
from jobctl.jobspec.launcher.etcd.session_lease import TERMINATED
from jobctl.jobspec.launcher.etcd.session_messages import SessionReport, SessionRequest
from jobctl.jobspec.launcher.peers.lease import FIRST_TICKS, NOBODY, TICK
from jobctl.jobspec.launcher.system.files import read_json, read_secrets, write_json
from jobctl.jobspec.launcher.system.network import is_cut
from jobctl.jobspec.launcher.system.pipe import MessagePipe
from jobctl.jobspec.launcher.system.processes import SIGNALS, boot_time, die_with_parent

if TYPE_CHECKING:
    import argparse
    import socket
    from typing import Dict, Optional

    from jobctl.jobspec.launcher.etcd.session_messages import NodeCourse
    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.system.files import Json
SPOKEN = 1.5  # seconds for which it looks more often once a node has failed: autonomy.LAST


class EtcdSession:
    """Keeps the node's lease in etcd, and knows the generation there.

    It is a process of its own: the launcher sends it one SessionRequest after the other, and it sends a SessionReport after each round.
    """

    def __init__(self, launch: Launch, options: argparse.Namespace, channel: socket.socket) -> None:
        settings = launch.etcd
        assert settings is not None
        secrets = read_secrets(options.secrets)
        self.etcd = Etcd(settings, secrets.get(settings.password or ""))
        self.prefix = settings.prefix
        self.node = launch.node  # NOBODY as long as the launcher is idle
        self.instance = os.urandom(8).hex()
        self.course: Optional[NodeCourse] = None  # what others are to know of the node, beside its key
        self.keys = JobKeys(self.prefix, [])  # what etcd has of the job, …
        self.known = False  # … and whether it was asked
        self.hurries = 0.0  # until when it looks more often for what they say, as one has failed
        self.written: Optional[str] = None  # the value of our key, as last seen
        self.pipe = MessagePipe(channel)
        self.host = launch.host
        self.file = os.path.join(options.dir, "lease")
        self.cut = os.path.join(os.path.dirname(options.control), "cut")
        self.before = self.lease_of_before()  # of the launcher before this one, which is dead
        self.lease: Optional[str] = None
        self.asked = self.asked_other = 0.0  # when that was granted, or asked to be kept alive
        self.other: Optional[str] = None  # one of another length, which the key is to go with
        self.has_key = False
        self.ttl = self.lease_ttl = self.other_ttl = 0  # seconds: as it should be, as it is, as it will be
        self.alive: Optional[float] = None  # from when on the lease counts, with which the key was seen
        self.paused: Optional[float] = None  # when it stood still, see Quorum
        self.over = False
        self.order: Optional[Order] = None  # as etcd has it
        self.changed = False
        self.proposal: Optional[Order] = None
        self.after: Optional[str] = None
        self.gone: Dict[int, float] = {}  # members without a lease, and since when
        self.quorum = Quorum(self.etcd)

    @property
    def key(self) -> str:
        """The node's key; that of a host with an idle launcher."""
        return key_for(self.prefix, self.node, self.host)

    @property
    def value(self) -> str:
        """What the key is to say."""
        who = {"node": self.node, "host": self.host, "instance": self.instance}
        return json.dumps({**who, **({"course": self.course.to_json()} if self.course is not None else {})})

    def run(self) -> int:
        """Keep it until told to leave."""
        die_with_parent()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        import select

        while True:
            began = boot_time()
            pause = self.turn(began)
            writing = [self.pipe.socket] if self.pipe.out else []
            select.select([self.pipe.socket], writing, [], max(0.0, began + pause - boot_time()))
            if not self.listen():
                self.leave()
                return 0

    def turn(self, now: float) -> float:
        """See to everything once, and tell the launcher; return after how many seconds to do so again."""
        problem, again = None, False
        try:
            if not is_cut(self.cut):
                again = self.round()
                self.quorum.note_answer()
        except EtcdError as error:
            problem = str(error)
            self.pause(self.quorum.paused(now) if error.status is None else None)
        self.say(problem)
        settled = (self.has_key or not self.wants_key()) and now >= self.hurries
        return 0.0 if again else TICK if problem or settled else FIRST_TICKS

    def pause(self, at: Optional[float]) -> None:
        """Let the lease count from `at`, when no lease could end; it must not have been over by then."""
        times = [time for time in (self.alive, self.paused) if time is not None]
        if at is not None and self.alive is not None and at - max(times) <= self.lease_ttl - TERMINATED:
            self.paused = at

    def listen(self) -> bool:
        """Read what the launcher says; return False when it leaves."""
        for message in self.pipe.receive():
            if not self.hear(SessionRequest.from_json(message)):
                return False
        return not self.pipe.closed

    def hear(self, request: SessionRequest) -> bool:
        """Do what the launcher asks for; return False when it leaves."""
        self.course = request.course or self.course
        if request.node is not None and request.node != self.node:
            self.node, self.course = request.node, None
            self.give_up()
        if request.release and not self.wants_key():
            self.give_up()
        if request.proposal is not None:
            self.proposal, self.after = request.proposal, request.after
            self.take_length(request.proposal)
        return not request.leave

    def give_up(self) -> None:
        """End the lease, and with it the key; nothing runs by it."""
        self.before, self.lease = self.lease or self.before, None
        self.other, self.has_key, self.alive, self.paused = None, False, None, None

    def take_length(self, order: Order) -> None:
        """Take note of how long leases are in a generation."""
        self.ttl = int(order.host_timeout + TERMINATED + 0.999)

    def say(self, problem: Optional[str]) -> None:
        """Tell the launcher how things are."""
        now = boot_time()
        times = [at for at in (self.alive, self.paused) if at is not None]
        report = SessionReport(
            at=max(times) if self.has_key and self.alive is not None and self.node != NOBODY else None,
            agreed=self.order.id if self.order else None,
            gone={node: now - since for node, since in self.gone.items()},
            ttl=self.lease_ttl,
            problem=problem,
            over=self.over,
            node=self.node,
            spares=self.keys.spares,
            courses=self.keys.courses,
            known=self.known,
            ended=self.keys.over if self.keys.is_over else None,
        )
        self.pipe.flush()
        if self.pipe.out:
            return  # it hears nothing just now; what is said then is what is so then
        if self.changed:
            report.order, self.changed = self.order, False
        self.over = False
        self.pipe.send(report.to_json())

    def round(self) -> bool:
        """See to everything once; say whether there is more to do at once. Raises EtcdError."""
        if self.before is not None:
            self.revoke(self.before)
            self.before = None
        if self.lease is not None:
            self.renew(self.lease)
        if self.ttl and self.lease is None and self.wants_key():
            self.asked = boot_time()
            self.lease = self.grant()
            self.lease_ttl = self.ttl
        took = self.look()
        if self.has_key and self.ttl != self.lease_ttl:
            self.swap()
            took = True
        elif self.has_key and self.lease is not None and self.written != self.value:
            self.put_key(self.lease, self.lease)
            took = True
        if self.order is not None and self.keys.are_done and not self.keys.is_over:
            over = json.dumps({"generation": self.order.id})
            put_if(self.etcd, self.keys.unchanged, over_key(self.prefix), over)
            took = True
        return self.put_proposal() or took

    def grant(self) -> str:
        """Return a new lease, which the next launcher on this host will know of."""
        lease = str(self.etcd.call("/v3/lease/grant", TTL=str(self.ttl))["ID"])
        self.remember(lease)
        return lease

    def swap(self) -> None:
        """Have the key go with a lease of another length; the next look says whether it does."""
        self.asked_other = boot_time()
        self.other, self.other_ttl = self.grant(), self.ttl
        self.put_key(self.lease, self.other)

    def put_key(self, before: Optional[str], lease: str) -> None:
        """Write the node's key again, with `lease`, if it still goes with the lease `before`."""
        put_if(self.etcd, {"target": "LEASE", "lease": before}, self.key, self.value, lease)

    def renew(self, lease: str) -> None:
        """Keep the lease alive."""
        now = boot_time()
        left = int(self.etcd.call("/v3/lease/keepalive", ID=lease).get("TTL", 0))
        if left <= 0:
            self.lose()
        else:
            self.asked = now

    def lose(self) -> None:
        """Take note that the lease is over: others may have the node."""
        self.over = self.over or self.has_key
        self.lease, self.other, self.has_key, self.alive = None, None, False, None

    def look(self) -> bool:
        """Read generation and nodes, and take the node's key if it is free; say whether to look again at once."""
        now = boot_time()
        end = self.prefix + "0"  # the character after the slash
        found = self.etcd.call("/v3/kv/range", key=text64(self.prefix + "/"), range_end=text64(end)).get("kvs", [])
        before, self.keys, self.known = failed_in(self.keys.courses), JobKeys(self.prefix, found), True
        if self.keys.order != self.order:
            self.order, self.changed = self.keys.order, True
        if self.proposal is not None and not self.is_due(self.proposal):
            self.proposal = None
        if self.order is not None and self.proposal is None:
            self.take_length(self.order)
        self.gone = {node: self.gone.get(node, now) for node in self.keys.missing}
        if set(failed_in(self.keys.courses)) - set(before):
            self.hurries = now + SPOKEN  # the cause of a failure may be said after the failure
        return self.look_at_key(self.keys.items.get(self.key))

    def look_at_key(self, mine: Optional[Json]) -> bool:
        """See whether the node's key goes with our lease; take it if it is free, and say so. Raises EtcdError for another's."""
        lease = mine.get("lease") if mine else None
        if self.other is not None and lease == self.other:
            before, self.lease, self.other = self.lease, self.other, None
            self.lease_ttl, self.asked = self.other_ttl, self.asked_other
            if before is not None:
                self.revoke(before)
        if self.lease is not None and mine is not None and lease == self.lease:
            self.has_key, self.alive, self.written = True, self.asked, of64(mine["value"])
            return False
        if self.has_key:
            self.lose()  # somebody has deleted it
            return True
        if self.lease is None or not self.wants_key():
            return False
        if mine is not None:
            host = json.loads(of64(mine["value"]))["host"]
            raise EtcdError("the node's lease is that of a launcher on %s; waits until it is over" % host, 409)
        self.take_key(self.lease)
        return True

    def wants_key(self) -> bool:
        """Return whether the newest known order runs, and has the node on this host.

        If not, the key is for the launcher on another one, or for none: the launcher that has it may go on with the job.
        """
        known = [order for order in (self.order, self.proposal) if order is not None]
        newest = max(known, key=lambda order: order.age, default=None)
        if newest is None or newest.command != "run" or (newest is self.order and self.keys.is_over):
            return False
        return has_place(newest, self.node, self.host)

    def take_key(self, lease: str) -> None:
        """Take the node's key if nobody has it; the next look says whether we do."""
        put_if(self.etcd, {"target": "CREATE", "create_revision": "0"}, self.key, self.value, lease)

    def is_due(self, order: Order) -> bool:
        """Return whether what is proposed is newer than what etcd has, and follows that where it has to.

        The end of the job follows something: where nothing is left of it in etcd, it has ended.
        """
        there = self.order
        if there is None:
            return self.after is None and order.command != "finish"
        return order.age > there.age and (self.after is None or (there.id == self.after and there.command == "run"))

    def put_proposal(self) -> bool:
        """Put what is proposed into etcd; say whether to look again at once. Raises EtcdError.

        To begin a generation takes the node's lease, to end one does not.
        """
        order = self.proposal
        if order is None or (order.command == "run" and not self.has_key):
            return False
        put_if(self.etcd, self.keys.unchanged, self.prefix + "/generation", json.dumps(order.to_json()))
        return True

    def leave(self) -> None:
        """Give the lease back; the last one to leave a job that is finished takes the rest along."""
        with contextlib.suppress(EtcdError, OSError):
            if self.lease is not None:
                self.revoke(self.lease)
            proposal = self.proposal or self.order
            if proposal is not None and proposal.command == "finish":
                remove_rest(self.etcd, self.prefix)

    def revoke(self, lease: str) -> None:
        """End a lease, and the key that goes with it. Raises EtcdError if nobody answers."""
        try:
            self.etcd.call("/v3/lease/revoke", ID=lease)
        except EtcdError as error:
            if error.status is None:
                raise  # else it is over already

    # What the next launcher on this host has to know: it may end this one's lease, as it starts only once this one is dead.

    def lease_of_before(self) -> Optional[str]:
        """Return the lease of the launcher before this one, None if there was none.

        Not that of one on another host whose directory this is too: it may live.
        """
        last = read_json(self.file) or {}
        return last["lease"] if last.get("host") == self.host else None

    def remember(self, lease: str) -> None:
        """Write down our lease."""
        write_json(self.file, {"lease": lease, "host": self.host})
