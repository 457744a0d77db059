"""Following a job on its hosts: what happens there is sent as it happens, and nothing is asked twice.

On one held channel per host come a tick of the host's own every second and those of its launchers, which are answered
(see model/liveness.py); its engine sends events. jobctl then reads the parts that changed, on that host only.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import ANSWER_TIMEOUT, check_answer
from jobctl.jobspec.deploy.host.reconnect import FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE, RetryPauses
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.host_state import HostState, PutTogether
from jobctl.jobspec.deploy.model.liveness import EXPIRY, FailureDetector
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.tick_reader import TickReader
from jobctl.jobspec.deploy.model.untrusted import as_moment, as_number
from jobctl.jobspec.deploy.store.lock import Locked, describe_holder
from jobctl.jobspec.deploy.store.processes import alive
from jobctl.jobspec.deploy.transport.answers import MAX_LINE_BYTES, bound

MEET = 4.0  # seconds that the first look waits for hosts; those that take longer come later
KEEP = 5.0  # seconds after which a host is told that we are there, if there was nothing to answer
TICK_TIMEOUT = 12.0  # seconds without a tick after which a connection is given up, and made again
READERS = 8  # hosts that are read at the same time
STILL = 2.0  # seconds for which a look counts that has found no launcher, while it matters
RELEASE = 1.0  # seconds that hosts have to release the lock of a supervisor that ends
REREAD_INTERVAL = 60.0  # seconds after which a host is read again although it tells of no change
NOTHING = HostState((), Control(), {})


class Following:
    """All hosts of one job, followed until `close`. `detector` knows who was heard."""

    def __init__(self, host_jobs: Sequence[HostJob], detector: FailureDetector, me: str) -> None:
        self.detector = detector
        self.woken = threading.Event()
        self.readers = threading.BoundedSemaphore(READERS)
        self.pauses = RetryPauses()
        self.hosts = [HostFollowed(host_job, self, me) for host_job in host_jobs]
        self.who = describe_holder("supervise")

    def start(self) -> None:
        """Begin; return when every host has answered, or has had a while to. Raises Locked if another one follows."""
        for host in self.hosts:
            host.begin()
        deadline = time.monotonic() + MEET
        for host in self.hosts:
            host.met.wait(max(0.0, deadline - time.monotonic()))
        taken = [host.taken for host in self.hosts if host.taken]
        if taken:
            self.close()
            raise taken[0]

    def wait(self, seconds: float) -> None:
        """Return when something changed, or after `seconds`."""
        self.woken.wait(seconds)
        self.woken.clear()

    def seen(self) -> tuple[Mapping[str, HostState], Mapping[str, DeployError]]:
        """Return what is on the hosts that are heard, and why others are not."""
        problems = {host.name: problem for host in self.hosts if (problem := host.problem()) is not None}
        return {host.name: host.seen for host in self.hosts if host.name not in problems}, problems

    def outranked(self) -> Locked | None:
        """Return who else follows some of the hosts, and began to before us: after a cut both cannot go on.

        None as well of two who each hold a part would ever hold enough.
        """
        mine = _rank(self.who)
        return next((host.taken for host in self.hosts if host.taken and _rank(host.taken.holder) < mine), None)

    def look_again(self, hosts: Collection[str], age: float) -> None:
        """Read those of `hosts` soon that were not looked at for `age` seconds."""
        for host in self.hosts:
            if host.name in hosts and time.monotonic() - host.looked > age:
                host.read_soon()

    def feed(self, put_together: PutTogether) -> HostFeed:
        """Return what they send; `put_together` makes one picture of what was seen, and of hosts that are silent."""
        return HostFeed(self, put_together)

    def look(self, host: str) -> HostState:
        """Read a host now. Raises HostError."""
        return next(one for one in self.hosts if one.name == host).look()

    def close(self) -> None:
        """Let go of all hosts. The next supervisor can follow them at once: those that answer have released the lock."""
        for host in self.hosts:
            host.end()
        deadline = time.monotonic() + RELEASE
        for host in self.hosts:
            host.let_go(max(0.0, deadline - time.monotonic()))


class HostFollowed:
    """One host that is followed."""

    def __init__(self, host_job: HostJob, all_: Following, me: str) -> None:
        self.host_job, self.name, self.all, self.me = host_job, host_job.host.name, all_, me
        self.seen = NOTHING
        self.met = threading.Event()  # it has answered once, or cannot
        self.taken: Locked | None = None
        self._problem: DeployError | None = None
        self._over, self._left = threading.Event(), threading.Event()  # we are done; nothing comes from it any more
        self._channel: Any = None
        self._pause = all_.pauses.one()
        self._ticks = TickReader(all_.detector, self.name)
        self.looked = 0.0  # when the look began that found what is `seen`
        self._told = self._read_at = 0.0
        self._owned = self._idle = False  # whether the host keeps our name; whether there is nothing of the job
        self._lock, self._stale = threading.Lock(), threading.Event()
        self._told_last: dict[str, str] = {}  # what its engine has told last of each container

    def begin(self) -> None:
        """Start to follow it."""
        for task in (self._follow, self._hear_engine, self._read_whenever_stale):
            threading.Thread(target=task, daemon=True, name=f"follow {self.name}").start()

    def end(self) -> None:
        """Stop: the host's script ends with its input, and releases the lock."""
        self._over.set()
        self._stale.set()
        self._pause.end()
        channel = self._channel
        if channel is not None:
            with contextlib.suppress(OSError, EOFError):
                channel.shutdown(socket.SHUT_WR)

    def let_go(self, seconds: float) -> None:
        """Wait until the host's script has ended, for `seconds` at most, and close the channel."""
        self._left.wait(seconds)
        if self._channel is not None:
            with contextlib.suppress(OSError, EOFError):
                self._channel.close()

    def problem(self) -> DeployError | None:
        """Return why it is not heard, None if it is."""
        if self._problem is not None or self._idle:  # where there is nothing of the job, nothing sends ticks
            return self._problem
        if not self.met.is_set() or self.seen is NOTHING:
            return DeployError(f"{self.name}: not read yet")
        silent = self.all.detector.seconds_overdue(self.name)
        return None if silent is None else HostError(self.name, "silent", f"not heard of for {silent:.0f} s")

    # The channel.

    def _follow(self) -> None:
        try:
            self._follow_until_over()
        finally:
            self._left.set()

    def _follow_until_over(self) -> None:
        while not self._over.is_set():
            try:
                for line in self._lines():
                    self._hear(line)
            except Locked as locked:
                if not _is_gone(locked.holder, locked.age):  # one that was killed is soon noticed to be
                    self.taken = locked
                self._fail(DeployError(f"{self.name}: another supervisor follows it: {locked}"))
            except HostError as error:
                self._fail(error)
            except Exception as error:  # of paramiko, or a socket: whatever it is, this host is to be followed again
                self._fail(HostError(self.name, "lost", f"the connection was lost: {error or 'it ended'}"))
            finally:
                self.met.set()
            if not self._over.is_set():
                self._pause.wait()

    def _fail(self, error: DeployError) -> None:
        self._pause.fail()
        if not self._over.is_set():
            self._problem = error
            self.all.woken.set()

    def _lines(self) -> Iterator[bytes]:
        """Yield what the host sends. Raises Locked, HostError, and what a channel raises."""
        argv = SCRIPTS.argv("watch", *self.host_job.place_arguments, json.dumps(self.all.who), self.me, str(EXPIRY))
        channel = self._channel = self.host_job.transport.dial(argv)
        with contextlib.closing(channel):
            if self._over.is_set():
                return
            channel.settimeout(ANSWER_TIMEOUT)
            rest = b""
            heading: list[str] = []
            while True:
                data = channel.recv(65536)
                if not data:
                    raise EOFError
                *lines, rest = (rest + data).split(b"\n")
                bound(self.name, "what reports to the supervisor", len(rest), MAX_LINE_BYTES)
                for line in lines:
                    if len(heading) < 4:
                        heading.append(line.decode("utf-8", "replace"))
                        if self._is_idle(heading):
                            return
                        if len(heading) == 4:
                            channel.settimeout(TICK_TIMEOUT)
                            self._begin_to_hear(heading[3])
                    else:
                        yield line

    def _is_idle(self, heading: Sequence[str]) -> bool:
        """Read the first lines; say whether there is nothing of the job. Raises Locked or HostError."""
        if len(heading) == 2:
            self.host_job.use_directories(heading[0], heading[1])
        if len(heading) != 3:
            return False
        if heading[2] != "gone":
            check_answer(heading[2], self.name, f"{heading[1]}/supervisor.lock")
            return False
        self.seen, self._idle, self._problem = NOTHING, True, None
        self._pause.hear()
        self.met.set()
        self._over.wait(MAX_RETRY_PAUSE)
        return True

    def _begin_to_hear(self, before: str) -> None:
        self._owned = before.partition(" ")[2] in ("", self.me)
        if not self._owned:
            self.all.detector.succeed()
        self._ticks.forget()
        self._pause.hear()
        self._idle, self._problem = False, None
        self.all.detector.hear_host(self.name)
        self.read_soon()

    def _hear(self, line: bytes) -> None:
        self.taken = None
        self.all.detector.hear_host(self.name)
        if self._problem is not None:
            self._problem = None
            self.all.woken.set()
        now = time.monotonic()
        if now - self._read_at > REREAD_INTERVAL:
            self.read_soon()
        if not self._owned and self.all.detector.may_own():
            self._owned = True
            self._say("own")
        if line == b"t":
            if now - self._told > KEEP:
                self._say("-")
            return
        tick = self._ticks.read(line)
        if tick is None:
            return  # whatever wrote that into the pipe, it was no launcher
        if tick.answer is not None:
            self._say(f"{tick.node} {tick.answer}")
        if tick.reported:
            self.read_soon()

    def _say(self, text: str) -> None:
        self._channel.sendall(f"{text}\n".encode())
        self._told = time.monotonic()

    # The engine.

    def _hear_engine(self) -> None:
        """Read the host whenever its engine says that something became of a container of the job."""
        wanted = {"label": f"jobctl.job={self.host_job.job}", "type": "container", "event": list(_EVENTS)}
        pause = FIRST_RETRY_PAUSE
        while not self._over.wait(pause * random.uniform(0.5, 1.0)):
            if not self.met.is_set() or self.seen is NOTHING or self._problem is not None:
                continue
            try:
                with self.host_job.engine.asked() as client:
                    events = client.events(filters=wanted, decode=True)
                    self._told_last.clear()  # it may have missed something since
                    self.read_soon()
                    pause = FIRST_RETRY_PAUSE
                    for event in events:
                        if self._over.is_set():
                            return
                        self._told_last[str(event.get("id"))] = str(event.get("Action"))
                        self.read_soon()
            except Exception:  # its engine is gone, or the host; launchers run on without it
                pause = min(2 * pause, MAX_RETRY_PAUSE)
            self.read_soon()

    def _as_told(self, seen: SeenContainer) -> SeenContainer:
        """Return a container as its engine has told: it does so a moment before its list of containers does."""
        told = self._told_last.get(seen.id)
        paused = told == "pause" or (seen.paused and told != "unpause")
        return replace(seen, running=seen.running and told not in ("die", "died", "destroy", "remove"), paused=paused)

    # Reading.

    def read_soon(self) -> None:
        """Read the host again, in the background; once more if something changes meanwhile."""
        self._stale.set()

    def _read_whenever_stale(self) -> None:
        pause = FIRST_RETRY_PAUSE
        while self._stale.wait() and not self._over.is_set():
            self._stale.clear()
            try:
                with self.all.readers:
                    self.look()
            except Exception:  # the channel tells when the host is gone, and has it read when it is back
                if not self._over.wait(pause) and self._problem is None:
                    self.read_soon()
                pause = min(2 * pause, MAX_RETRY_PAUSE)
            else:
                pause = FIRST_RETRY_PAUSE
            self.met.set()
            self.all.woken.set()

    def look(self) -> HostState:
        """Read it now. Raises HostError."""
        with self._lock:  # what was read later is what counts
            began = time.monotonic()
            try:
                containers = self.host_job.containers.seen()
            except HostError:  # its engine does not answer; its launchers are heard all the same
                self.seen = replace(self.host_job.observe(self.seen.containers), blind=True)
            else:
                self.seen = self.host_job.observe(tuple(map(self._as_told, containers)))
            self.looked, self._read_at = began, time.monotonic()
            return self.seen


def _is_gone(holder: Mapping[str, Any], age: float | None) -> bool:
    """Say whether a supervisor was one of this machine that has ended, this very process before, or lets go just now."""
    erased = not holder and (age or 0.0) < EXPIRY  # who lets go does that first; a full disk never has a name
    pid, ticks, here = holder.get("pid"), holder.get("start_ticks"), holder.get("host") == socket.gethostname()
    return erased or (here and (pid == os.getpid() or not alive(pid, ticks)))


def _rank(holder: Mapping[str, Any]) -> tuple[float, str, int]:
    return as_moment(holder.get("since")) or 0.0, str(holder.get("host")), as_number(holder.get("pid")) or 0


# Podman's own names of two of them: before 4.4 it knows an event by another name where it looks for it than where it tells it.
_EVENTS = ("create", "start", "die", "died", "destroy", "remove", "oom", "pause", "unpause")


class HostFeed:
    """What the hosts of a job send, put together as `Following.feed` says."""

    def __init__(self, following: Following, put_together: PutTogether) -> None:
        self.following, self.detector, self._put_together = following, following.detector, put_together

    def wait(self, seconds: float) -> None:
        """Return when something changed, or after `seconds`."""
        self.following.wait(seconds)

    def refresh(self) -> None:
        """Read all hosts again soon, whatever they tell."""
        for host in self.following.hosts:
            host.read_soon()

    def observe(self) -> Observed:
        """Return the job as last heard of. Raises Locked for another supervisor, and the first host's error if none is heard."""
        looked = {host.name: host.looked for host in self.following.hosts}  # first: what is seen may be newer then
        seen, problems = self.following.seen()
        other = self.following.outranked()
        if other is not None:
            raise other
        fresh = {
            host: replace(
                one, reports={node: self.detector.refreshed(node, report) for node, report in one.reports.items()}
            )
            for host, one in seen.items()
        }
        observed = self._put_together(fresh, problems)
        self.detector.expect(observed.control.generation)
        looked = {host: at for host, at in looked.items() if host in seen and not seen[host].blind}
        self._tell_of_the_missing(observed, looked)
        back = [place for place in observed.old_places if place.host in looked]
        self.detector.vacate({place: looked[place.host] for place in back if not seen[place.host].has(place.node)})
        self.following.look_again({place.host for place in back}, STILL)
        return observed

    def _tell_of_the_missing(self, observed: Observed, looked: Mapping[str, float]) -> None:
        """Tell `detector` of launchers that do not run."""
        homes = observed.control.placement
        missing = {
            node.node: node.host
            for node in observed.members
            if not node.alive and node.host in looked and node.host == homes[node.node]
        }
        self.detector.miss({node: looked[host] for node, host in missing.items()})
        if observed.unreachable:  # then it matters that they are still not there
            self.following.look_again({*missing.values()}, STILL)
