"""Following a job on this machine: its launchers write into a pipe, and the supervisor answers."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from jobctl.jobspec.deploy.model.host_state import HostState, PutTogether
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.tick_reader import TickReader
from jobctl.jobspec.deploy.targets.job_on_host import JobOnHost
from jobctl.jobspec.deploy.transport.descriptors import wait_for

PROCESS_POLL_INTERVAL = 0.2  # seconds between two looks at the process table: a launcher that is killed says nothing


class LocalFollowing:
    """What the launchers of a job in the directory `work` send, from `start` until `close`."""

    def __init__(self, host_job: JobOnHost, work: Path, detector: FailureDetector) -> None:
        self.host_job, self.work, self.detector = host_job, work, detector
        self.host = host_job.host.name
        self.woken = threading.Event()
        self._path = work / "run" / "feeds" / str(os.getpid())
        self._pipe = -1
        self._ticks = TickReader(detector, self.host)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="follow")

    def start(self) -> None:
        """Begin to answer."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path, 0o600)
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread.start()

    def look(self, host: str) -> HostState:
        """Read this machine now."""
        del host  # there is but one
        return self.host_job.observe()

    def feed(self, put_together: PutTogether) -> LocalFeed:
        """Return what they send; `put_together` makes a picture of what was seen."""
        return LocalFeed(self, put_together)

    def close(self) -> None:
        """Stop to answer."""
        self._over.set()
        self._thread.join()
        os.close(self._pipe)
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _follow(self) -> None:
        rest = b""
        while not self._over.is_set():
            self.detector.hear_host(self.host)
            if not wait_for(self._pipe, PROCESS_POLL_INTERVAL):
                continue
            *lines, rest = (rest + os.read(self._pipe, 65536)).split(b"\n")
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        self.detector.hear_host(self.host)
        tick = self._ticks.read(line)
        if tick is None:
            return  # whatever wrote that into the pipe, it was no launcher
        if tick.answer is not None:
            with contextlib.suppress(OSError):  # it is being taken down, or the disk is full
                (self.work / f"node-{tick.node}" / "answer").write_text(f"{tick.answer}\n")
        if tick.reported:
            self.woken.set()


class LocalFeed:
    """The ticks that launchers send, and the state of this machine, which is read each time."""

    def __init__(self, following: LocalFollowing, put_together: PutTogether) -> None:
        self._following, self.detector, self._put_together = following, following.detector, put_together

    def wait(self, seconds: float) -> None:
        """Return when something changed, or after `seconds`; a while at most."""
        self._following.woken.wait(min(seconds, PROCESS_POLL_INTERVAL))
        self._following.woken.clear()

    def refresh(self) -> None:
        """It is read each time."""

    def observe(self) -> Observed:
        """Return the job as it is."""
        host = self._following.host
        observed = self._put_together({host: self._following.look(host)}, {})
        self.detector.expect(observed.control.generation)
        return observed
