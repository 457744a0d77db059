"""The image of a job in containers: a file that all nodes see, fetched once by the machine of the batch script."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import say
from jobctl.jobspec.launcher.system.files import read_json
from jobctl.jobspec.launcher.system.processes import (
    PR_SET_PDEATHSIG,
    adopt_orphans,
    die_with_parent,
    kill_descendants,
    prctl,
)

if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional

    from jobctl.jobspec.launcher.system.files import Json
FETCHES = 3  # how often fetching is tried before the job fails
FETCH_RETRY_INTERVAL = 5.0  # seconds between two tries


class JobImage:
    """Has the image fetched before any node begins. Without containers, and where nodes have it, there is nothing to do."""

    def __init__(self, work: str, settings: Json) -> None:
        told = settings.get("image") or {}
        self.name = told.get("name")
        self.file: Optional[str] = told.get("file")  # None: each node has it
        self.wanted = bool(told.get("fetch"))
        self.argv = [settings["runner_python"], os.path.join(work, "allocation.py"), "image", "--work", work]
        self.problem: Optional[str] = None
        self.child: Optional[subprocess.Popen[bytes]] = None
        self.failed = 0
        self.next = 0.0

    def is_there(self, now: float) -> bool:
        """Say whether nodes can have it now; begins to fetch it, and again where that has failed."""
        if not self.wanted:
            return True
        if self.child is None:
            if now >= self.next and self.problem is None:
                self.child = self.fetch()
            return False
        if self.child.poll() is None:
            return False
        assert self.child.stdout is not None
        said = self.child.stdout.read().decode("utf-8", "replace").strip()
        self.wanted = self.child.returncode != 0
        self.child = None
        if self.wanted:
            self.failed += 1
            self.next = now + FETCH_RETRY_INTERVAL
            say("cannot fetch image %s: %s" % (self.name, said))
        if self.failed == FETCHES:
            self.problem = "cannot fetch image %s: %s" % (self.name, said or "see slurm.out")
        return not self.wanted

    def fetch(self) -> subprocess.Popen[bytes]:
        """Begin to fetch it, in a process that ends with this one."""
        say("fetches image %s" % self.name)
        return subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )

    @property
    def reason(self) -> Optional[str]:
        """What the job waits for, None if for nothing."""
        return "fetches image %s" % self.name if self.wanted else None

    def end(self) -> None:
        """Give up fetching it."""
        if self.child is not None:
            self.child.terminate()
            self.child.wait()
            self.child = None


def fetch_image(work: str) -> int:
    """Fetch the image into its file, unless it is there; print why that went wrong.

    Others may want the same file: of those that ask at a time, one fetches it, and the others wait. If that one dies,
    the next one does it.
    """
    adopt_orphans()
    signal.signal(signal.SIGTERM, _end_all)
    told = (read_json(os.path.join(work, "slurm.json")) or {})["image"]
    file = told["file"]
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(os.path.join(os.path.dirname(file), "lock"), "a", encoding="utf-8") as lock:
        alone = _wait_for_turn(lock)
        if os.path.exists(file):
            return 0
        if told["pull"] == "never":
            sys.stdout.write("`pull: never`, and there is no %s\n" % file)
            return 1
        for left in glob.glob(glob.escape(file) + ".new-*") if alone else ():  # by somebody who was killed
            os.unlink(left)
        new = "%s.new-%s-%d" % (file, socket.gethostname(), os.getpid())
        argv = ["sh", os.path.join(work, "start.sh"), "pull", new]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.PIPE, preexec_fn=die_with_parent
        )
        text = done.stderr.decode("utf-8", "replace").strip()
        if text:
            sys.stderr.write(text + "\n")
        if done.returncode == 0:
            os.replace(new, file)
            return 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        sys.stdout.write("%s\n" % (text.splitlines()[-1] if text else "exit code %d" % done.returncode))
        return 1


def _wait_for_turn(lock: Any) -> bool:
    """Wait until nobody else holds the lock; say whether there is one: storage without locks lets others fetch it too."""
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another job fetches the image: waits for it")
        fcntl.lockf(lock, fcntl.LOCK_EX)
    except OSError as error:
        say("cannot lock %s: %s" % (lock.name, error.strerror))
        return False
    return True


def _end_all(number: int, frame: Any) -> NoReturn:
    kill_descendants()
    os._exit(128 + number)
