"""An image goes from one that has it to many hosts, each of which hands it on while it arrives.

A program in Python (scripts/hand_on.py) runs on each host for that time, as the user who logs in there. This machine tells
them who takes the image from whom, over the connections that it has to them. The bytes of the image come this way only if no
host has it, and once.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from jobctl.jobspec.deploy.host.chain import Chain, Link
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.pace import Pace
from jobctl.jobspec.deploy.host.scripts import HAND_ON, SCRIPTS, holding, joined, packed, taking
from jobctl.jobspec.deploy.host.scripts.frames import PIECE, Frame, Window, feed, fill, sealed
from jobctl.jobspec.deploy.host.transfer_progress import TransferProgress
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.untrusted import Json, parse_object
from jobctl.jobspec.deploy.transport.base import RunningCommand
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.records import dataclass

READY = 15.0  # seconds in which a host begins to take part
SILENCE_TIMEOUT = 12.0  # seconds without a word of a host, which speaks every three at least, after which it is lost
HEARTBEAT_INTERVAL = 30.0  # seconds between two words to a host, which waits four times as long for one
# Seconds without a byte after which a host is lost: engines may take long before they save anything
TRANSFER_TIMEOUT = 600.0
ARRIVING = "arriving"  # the folder of a host's own where parts of images are kept, until they are whole
LOADS = 3600.0  # seconds in which an engine makes of the archive what it needs


@dataclass
class HandingHost:
    """A host that takes part: the program there, and what it has told of last."""

    name: str
    tell: Callable[[str], None]
    command: RunningCommand
    address: str
    container: str = ""  # in which it runs, if it does
    port: int | None = None
    at: int = 0
    got: int = 0  # bytes of it that it got over the network
    have: list[bytes] = field(default_factory=list)  # SHA-256 of the pieces that it has kept of an earlier transfer
    over: float | None = None  # when all had arrived
    loaded: bool | None = None  # whether its engine has the image; None: not known yet
    heard: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)  # when something has arrived
    fed: threading.Event | None = None  # ends what this machine feeds it with
    writes: threading.Lock = field(default_factory=threading.Lock)
    progress: TransferProgress | None = None

    def send(self, frame: Frame, *, patient: bool = True) -> None:
        """Send a frame, not while another one is sent unless this is `patient`. Raises OSError, EOFError."""
        if self.writes.acquire(blocking=patient):
            try:
                self.command.send(frame.head + frame.body)
            finally:
                self.writes.release()


def image_load(job: HostJob) -> tuple[list[str], bytes]:
    """Return the command that takes an image on a host, and what comes before the archive in its input."""
    return [*job.docker, "load"], b""


@dataclass(frozen=True)
class ArchiveSource:
    """Where an archive comes from: a host, with the command that saves it there, or this machine, with the bytes.

    `load` returns the command that takes it on a host: by default it is an image, and the host's engine does. `without` is None
    where it is not an image; `save` then reads `given`.
    """

    name: str
    host_job: HostJob | None
    save: list[str]
    without: frozenset[str] | None
    pieces: Callable[[], Iterator[bytes]]
    python: str = "python3"  # in the image; empty: there is none that could be used
    size: int = 0  # bytes that it may be; 0: not known
    keep: str = ""  # the name by which hosts keep what they have got, where they do
    load: Callable[[HostJob], tuple[list[str], bytes]] = image_load
    given: bytes = b""


class HandingOn:
    """One transfer of an image. For one thread."""

    def __init__(self, image: str, source: ArchiveSource, host_jobs: Mapping[str, HostJob]) -> None:
        self.image, self.source, self.host_jobs = image, source, host_jobs
        self._key = secrets.token_bytes(32)
        self._events: queue.Queue[tuple[str, Json | None]] = queue.Queue()
        self._hosts: dict[str, HandingHost] = {}
        self._chain = Chain(source.name, list(host_jobs))
        self._window = Window(waits=True)  # of what this machine feeds hosts with
        self._pace = Pace()
        self._beaten = time.monotonic()
        self._left: set[str] = set()
        self._cuts: dict[str, str] = {}  # why hosts could not go on the last time
        self.lost: dict[str, str] = {}  # why hosts do not have it
        self.unable: set[str] = set()  # those of them for which another source would make no difference
        self.silent: set[str] = set()  # those of them that do not answer any more

    def run(self) -> dict[str, str]:
        """Have the image loaded on the hosts; return why those did not get it that did not."""
        try:
            self._start()
            if self.source.name not in self._chain.lost:  # another source would make no difference to these
                self.unable = set(self.lost)
            if self.source.host_job is None:
                threading.Thread(target=self._read, daemon=True).start()
            self._link(self._chain.links)
            while any(self._hosts[name].loaded is None for name in self.host_jobs if name not in self.lost):
                self._step()
        finally:
            self._window.close()
            for host in self._hosts.values():
                self._end(host)
        return self.lost

    def tell_lost(self) -> dict[str, HostError]:
        """Tell which hosts did not get it, and why; return the errors of those that do not answer any more."""
        for host, why in self.lost.items():
            self.host_jobs[host].tell(f"{host} cannot take {self.image} from other hosts: {why}")
        words = f"it has stopped to answer while it got {self.image}"
        hint = "look whether it runs, and whether the network reaches it"
        return {host: HostError(host, "silent", words, hint) for host in self.lost if host in self.silent}

    # Starting.

    def _start(self) -> None:
        """Start the program on all hosts that take part."""
        jobs = {**self.host_jobs, **({self.source.name: self.source.host_job} if self.source.host_job else {})}
        program = packed(joined(*HAND_ON))
        started = fan_out(jobs, lambda name: self._start_on(jobs[name], program))
        self._hosts = {host.name: host for host in started.done.values()}
        for host in self._hosts.values():
            host.heard = time.monotonic()  # it has waited until the last one had logged in
            threading.Thread(target=self._listen, args=(host,), daemon=True).start()
        for name, error in started.failed.items():
            self._lose(name, error.message, quietly=True)
        while waiting := [host for host in self._present() if host.port is None]:
            self._hear(1.0, quietly=True)
            for host in waiting:
                if host.port is None and time.monotonic() - host.heard > READY:
                    self._lose(host.name, "it does not begin", quietly=True)

    def _present(self) -> list[HandingHost]:
        """Return those that take part still."""
        return [host for host in self._hosts.values() if host.name not in self._chain.lost]

    def _start_on(self, job: HostJob, program: bytes) -> HandingHost:
        order: dict[str, object] = {"key": self._key.hex(), "addr": job.host.address}
        argv, first, container = ["python3", "-c", taking(program)], program, ""
        if job is not self.source.host_job:
            load, before = self.source.load(job)
            order |= {"load": load, "before": before.hex(), "size": self.source.size}
            if self.source.keep:
                order |= {"keep": [str(job.own / ARRIVING), self.source.keep]}
        else:
            without = None if self.source.without is None else sorted(self.source.without)
            order |= {"save": self.source.save, "without": without, "given": self.source.given.hex()}
            if self.source.python and job.transport.run(["python3", "-c", ""]).code != 0:
                order["save"], container = None, f"jobctl-{job.job}-hand-on"
                self._remove(job, container)  # left by a command that was killed
                how = (container, job.job, self.source.save[-1], self.source.python, holding(program))
                first = b""
                argv = SCRIPTS.argv("hand_out", *how, *job.docker)
        command = job.transport.start(argv)
        made = HandingHost(job.host.name, job.tell, command, job.host.address, container)
        made.progress = TransferProgress(job.tell, "", self.source.size)
        with contextlib.suppress(OSError, EOFError):  # what it says tells why
            command.send(first + json.dumps(order).encode() + b"\n")
        return made

    def _listen(self, host: HandingHost) -> None:
        """Pass on what a host tells, to the end."""
        said = b""
        with contextlib.suppress(OSError, EOFError):
            while piece := host.command.output():
                *lines, said = (said + piece).split(b"\n")
                for line in lines:
                    self._events.put((host.name, parse_object(line) or {}))
            errors = host.command.errors().decode("utf-8", "replace").strip().splitlines()
            self._events.put((host.name, {"failed": errors[-1] if errors else "its program has ended"}))
        self._events.put((host.name, None))

    def _read(self) -> None:
        """Read the archive on this machine."""
        try:
            fill(self._window, self._key, self.source.pieces())
        except Exception as error:  # of an engine, or in its archive: the hosts get it another way
            self._events.put((self.source.name, {"failed": str(error) or type(error).__name__}))

    # What happens.

    def _step(self) -> None:
        """Take note of what hosts tell; speak to all hosts from time to time; give up those that are silent."""
        self._hear(1.0)
        now = time.monotonic()
        beats = now - self._beaten > HEARTBEAT_INTERVAL
        if beats:
            self._beaten = now
        for host in self._present():
            if now - host.heard > SILENCE_TIMEOUT:
                self.silent |= {host.name} & set(self.host_jobs)
                self._lose(host.name, f"it has said nothing for {SILENCE_TIMEOUT:g} s")
            elif host.over is not None and now - host.over > LOADS and host.loaded is None:
                self._lose(host.name, f"its engine has not loaded it within {LOADS:g} s")
            elif host.name in self.host_jobs and host.over is None and now - host.moved > TRANSFER_TIMEOUT:
                self._lose(host.name, f"nothing has come for {TRANSFER_TIMEOUT:g} s")
            elif beats:
                with contextlib.suppress(OSError, EOFError):
                    host.send(sealed(self._key, "K", 0), patient=False)
        self._keep_pace(now)

    def _keep_pace(self, now: float) -> None:
        """Move a host to the end that makes others wait."""
        places = {self.source.name: self._window.end} | {name: host.at for name, host in self._hosts.items()}
        slow = self._pace.slow(now, self._chain.links, places)
        if slow is not None:
            self._hosts[slow].tell(f"{slow} is slow, or the way to it: the others do not wait for it")
            self._link(self._chain.move_last(slow))

    def _hear(self, wait: float, *, quietly: bool = False) -> None:
        """Take note of all unread messages; wait up to `wait` seconds for the first. A host with an unread one is not silent."""
        with contextlib.suppress(queue.Empty):
            self._take(*self._events.get(timeout=wait), quietly=quietly)
            while True:
                self._take(*self._events.get_nowait(), quietly=quietly)

    def _take(self, name: str, told: Json | None, *, quietly: bool) -> None:
        host = self._hosts.get(name)
        if host is None:
            self._lose(name, str((told or {}).get("failed")), quietly=quietly)
        elif told is None:
            self._lose(name, "the connection was lost", quietly=quietly)
        else:
            host.heard = time.monotonic()
            self._take_note(host, told, quietly=quietly)

    def _take_note(self, host: HandingHost, told: Json, *, quietly: bool) -> None:
        """Take note of what a host has told."""
        if isinstance(port := told.get("port"), int):
            host.port = port
            with contextlib.suppress(ValueError):
                have = bytes.fromhex(str(told.get("have") or ""))
                host.have = [have[at : at + 32] for at in range(0, len(have), 32)]
        if isinstance(got := told.get("got"), int):
            host.got = got
        if isinstance(at := told.get("at"), int) and at != host.at:
            come, host.at, host.moved = at - host.at, at, time.monotonic()
            source = self._chain.source_of(host.name)
            if source is not None and host.progress is not None:
                host.progress.title = f"{host.name} gets {self.image} from {source}"
                host.progress.add(come)
        if told.get("over") is True and host.over is None and host.name != self.source.name:
            host.over = time.monotonic()
            self._chain.has_all(host.name)
            host.tell(f"{host.name} loads {self.image}")
        if isinstance(loaded := told.get("loaded"), bool):
            host.loaded = loaded
            if not loaded:
                if told.get("code") != os.EX_TEMPFAIL:  # as where a program of an earlier transfer has not ended yet
                    self.unable.add(host.name)
                self.lost[host.name] = str(told.get("said") or "its engine refuses it")
        if "lost" in told:
            self._cuts[host.name] = f"{told.get('source') or self.source.name}: {told['lost']}"
            self._link(self._chain.cut(host.name, str(told.get("source") or self.source.name)))
        if "failed" in told:
            self._lose(host.name, str(told["failed"]), quietly=quietly)

    def _lose(self, name: str, why: str, *, quietly: bool = False) -> None:
        """Go on without a host; `quietly` while nobody has been told of any link."""
        links = self._chain.lose(name)
        self._leave(name, why)
        self._link([] if quietly else links)

    def _leave(self, name: str, why: str) -> None:
        """End the program on a host that is lost; one that has the image by then needs it no more."""
        self._left.add(name)
        host = self._hosts.get(name)
        if name in self.host_jobs and (host is None or host.loaded is None):
            self.lost.setdefault(name, why)
        if host is not None:
            self._end(host)

    def _link(self, links: list[Link]) -> None:
        for gone in self._chain.lost - self._left:
            self._leave(gone, f"it can take it from nobody: {self._cuts.get(gone, 'all are gone')}")
        for link in links:
            if link.host not in self._chain.lost:
                self._tell(link)

    def _tell(self, link: Link) -> None:
        """Tell a host where to take it from, or feed it from here."""
        host, source = self._hosts[link.host], self._hosts.get(link.source)
        if host.fed is not None:
            host.fed.set()
        if source is None:
            host.fed = threading.Event()
            threading.Thread(target=self._feed, args=(host, host.fed), daemon=True).start()
            return
        order = {"from": [source.address, source.port], "name": source.name}
        self._order(host, sealed(self._key, "C", 0, json.dumps(order).encode()))

    def _order(self, host: HandingHost, frame: Frame) -> None:
        with contextlib.suppress(OSError, EOFError):  # what comes of it is told where it is listened to
            host.send(frame)

    def _feed(self, host: HandingHost, over: threading.Event) -> None:
        def send(frame: Frame) -> None:
            if over.is_set():
                raise EOFError
            host.send(frame)

        with contextlib.suppress(OSError, EOFError):
            feed(self._window, self._key, host.at, send, host.have[host.at // PIECE :])

    def _end(self, host: HandingHost) -> None:
        """End the program on a host."""
        if host.fed is not None:
            host.fed.set()
        with contextlib.suppress(OSError, EOFError, DeployError):
            host.command.close()
        if host.container and self.source.host_job is not None:
            self._remove(self.source.host_job, host.container)

    def _remove(self, job: HostJob, container: str) -> None:
        """Remove a container, if there is one of that name."""
        from docker.errors import APIError

        with contextlib.suppress(DeployError, APIError), job.engine.asked() as client:
            client.remove_container(container, force=True)
