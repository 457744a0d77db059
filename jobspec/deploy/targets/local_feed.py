"""Following a job on this machine: its launchers write into a pipe, and the supervisor answers."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

from jobctl.jobspec.deploy.model.liveness import FailureDetector, parse_tick
from jobctl.jobspec.deploy.model.observed import Observed

LOOK = 0.2  # seconds between two looks at the process table: a launcher that is killed says nothing


class LocalFeed:
    """What the launchers of a job in the directory `work` send. `look` reads what runs."""

    def __init__(self, work: Path, host: str, detector: FailureDetector, look: Callable[[], Observed]) -> None:
        self.work, self.host, self.detector, self._look = work, host, detector, look
        self.woken = threading.Event()
        self._path = work / "run" / "feeds" / str(os.getpid())
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path, 0o600)
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._versions: dict[int, str | None] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="follow")
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Return when something changed, or after `seconds`; a while at most."""
        self.woken.wait(min(seconds, LOOK))
        self.woken.clear()

    def refresh(self) -> None:
        """It is read each time."""

    def observe(self) -> Observed:
        """Return the job as it is."""
        observed = self._look()
        self.detector.expect(observed.control.generation)
        return observed

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
            ready, _, _ = select.select([self._pipe], [], [], LOOK)
            if not ready:
                continue
            *lines, rest = (rest + os.read(self._pipe, 65536)).split(b"\n")
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        self.detector.hear_host(self.host)
        tick = parse_tick(line)
        if tick is None:
            return  # whatever wrote that into the pipe, it was no launcher
        answer = self.detector.hear(tick, self.host)
        if answer is not None:
            with contextlib.suppress(OSError):  # it is being taken down, or the disk is full
                (self.work / f"node-{tick.node}" / "answer").write_text(f"{answer}\n")
        if self._versions.get(tick.node) != tick.report:
            self._versions[tick.node] = tick.report
            self.woken.set()
