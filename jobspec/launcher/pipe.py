"""The pipe between the launcher and the process that keeps its lease."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.etcd import ASKED
from jobctl.jobspec.launcher.files import note
from jobctl.jobspec.launcher.lease import Lease
from jobctl.jobspec.launcher.processes import boot_time

if TYPE_CHECKING:
    import socket
    from typing import Dict, List, Optional, Sequence, Set, Tuple

    from jobctl.jobspec.launcher.files import Json
UNSUPERVISED = 3.0  # seconds without an answer of the supervisor's after which launchers with etcd go on by themselves
#
# Below the job's prefix there is `generation`, the newest order, and `nodes/N` for each node that has a launcher: a
# key that goes with that launcher's lease. Only who has it may run the node, wherever it is: etcd decides alone.

TERMINATED = 2.0  # seconds between the end of a lease here and in etcd: processes are to be killed, clocks drift


class MessagePipe:
    """One end of a pair of sockets, for lines of JSON. It never blocks, neither to send nor to receive."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket, self.out, self.rest, self.closed = end, b"", b"", False

    def send(self, message: Json) -> None:
        """Send a message. What the socket has no room for goes with the next `flush`."""
        self.out += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what is left to send, as far as the socket has room."""
        try:
            while self.out:
                self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.out, self.closed = b"", True

    def receive(self) -> List[Json]:
        """Return the messages that have come."""
        try:
            while True:
                data = self.socket.recv(65536)
                if not data:
                    self.closed = True
                    break
                self.rest += data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        *lines, self.rest = self.rest.split(b"\n")
        return [json.loads(line.decode()) for line in lines]


class EtcdLease(Lease):
    """The lease that an EtcdSession keeps in etcd (another process, as etcd may be slow), and what that says of the job.

    `order` is the newest generation there, `gone` the members whose leases are over and for how long, `lost` whether
    the session's process has ended.
    """

    WAITS = "waits for its lease in etcd, and for the generation there"

    def __init__(self, channel: socket.socket) -> None:
        self.wanted = self.granted = 0.0  # what the generation has for a timeout, and the lease in etcd
        super().__init__()
        self.pipe = MessagePipe(channel)
        self.order: Optional[Json] = None
        self.first = True  # whether nothing was heard of a generation yet
        self.at: Optional[float] = None  # from when on the lease counts
        self.agreed: Optional[str] = None  # the generation that etcd has
        self.gone: Dict[int, float] = {}
        self.problem: Optional[str] = None
        self.said: Optional[str] = None
        self.lost = False
        self.began = boot_time()
        self.again: List[int] = []  # members whose launchers have forgotten this generation
        self.done: Set[int] = set()  # members that are done with it
        self.all_done = False  # all are, and know it

    # Whether the end is for the launchers to decide: where nobody else ever will.
    gives_up = False

    def located(self, order: Json, member: Json) -> Tuple[Json, Json]:
        """Return an order with addresses in place of names that change their meaning, and this node's entry in it."""
        return order, member

    def say_done(self, generation: str) -> None:
        """Tell the others that this node is done with a generation."""

    def begin(
        self,
        generation: Optional[str],
        nodes: Sequence[int],
        me: int,
        timeout: float,
        now: float,
        voters: Optional[Sequence[int]] = None,
    ) -> None:
        """Ask for one for a new generation: what etcd has is asked for each time."""
        super().begin(generation, nodes, me, min(timeout, self.granted or timeout), now, voters)
        self.began, self.wanted = now, timeout

    def move_on(self, generation: str, nodes: Sequence[int], me: int, now: float) -> None:
        """Have the same lease for a new generation."""
        super().move_on(generation, nodes, me, now)
        self.began = now

    def read(self) -> None:
        """Read what the session reports."""
        for said in self.pipe.receive():
            self.hear(said)
        self.pipe.flush()
        self.lost = self.pipe.closed

    def hear(self, said: Json) -> None:
        """Read what the session reports after one round."""
        self.at, self.agreed = said["at"], said["id"]
        self.gone = {int(node): seconds for node, seconds in said["gone"].items()}
        self.granted = said["ttl"] - TERMINATED
        self.timeout = min(self.wanted, self.granted)
        self.problem = said["problem"]
        if said["problem"]:
            self.say_once(said["problem"])
        if said["over"]:
            self.over = self.had  # the node may run elsewhere already
        order = said.get("order")
        if order is not None:
            self.order = None if self.first and order["command"] == "finish" else order
            self.first = False

    def renewed(self) -> Optional[float]:
        """Return from when on it counts, None before etcd has this generation."""
        return self.at if self.had or self.agreed == self.generation else None

    def has(self, now: float) -> bool:
        """Say whether there is a lease at all, whatever became of the one that the processes ran on."""
        return self.at is not None and now - self.at <= self.granted

    def held(self, now: float) -> bool:
        """Say whether processes may run."""
        return self.is_fresh(now)

    def unheard(self, now: float) -> Dict[int, float]:
        """Return the members that have no lease, and for how many seconds."""
        return self.gone

    def why_over(self) -> str:
        """Say why the processes may not go on."""
        return "its lease in etcd is over (%s)" % (self.problem or "%g s without an answer" % self.timeout)

    def waits(self) -> str:
        """Say what is waited for before processes may run."""
        return "%s (%s)" % (self.WAITS, self.problem) if self.problem else self.WAITS

    def supervised(self, now: float) -> bool:
        """Say whether a supervisor sees to the job: it has answered lately, or has hardly had the time to."""
        return now - (self.supervisor or self.began) <= UNSUPERVISED

    def end(self) -> float:
        """Return until when processes may run if etcd does not answer any more."""
        return (self.renewed() or 0.0) + self.timeout

    def propose(self, order: Json, after: Optional[str] = None) -> None:
        """Have `order` put into etcd if it is newer than what is there; with `after`, if that generation runs there."""
        self.pipe.send({"order": order, "after": after})

    def leave(self) -> None:
        """Give the lease back; takes as long as etcd takes to answer, at most."""
        import select

        self.pipe.send({"leave": True})
        until = time.monotonic() + ASKED
        while not self.pipe.closed and time.monotonic() < until:
            select.select([self.pipe.socket], [], [], 0.1)
            self.pipe.receive()
            self.pipe.flush()

    def say_once(self, text: str) -> None:
        """Tell a person who reads the launcher's own log, once."""
        if text != self.said:
            self.said = text
            note(text)
