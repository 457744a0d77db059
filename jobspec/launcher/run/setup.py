"""The commands that prepare a node before its first generation."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import Failure, Problem, fenced, may_pass, start_failure
from jobctl.jobspec.launcher.process.guard import cannot_start, spawn
from jobctl.jobspec.launcher.system.files import last_lines, naming, read_secrets
from jobctl.jobspec.launcher.system.processes import boot_time, kill_descendants

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence

    from jobctl.jobspec.launcher.node.agent import Launcher
POLL_SETUP = 0.05  # seconds between two looks at a command


def container_mark() -> Optional[str]:
    """Return a path in the container's own file system, which goes with the container; None if there is none to write to."""
    root = os.stat("/").st_dev
    for folder in ("/var/tmp", "/tmp"):
        with contextlib.suppress(OSError):
            if os.stat(folder).st_dev == root and os.access(folder, os.W_OK):
                return os.path.join(folder, ".jobctl-setup")
    return None


class Setup:
    """Runs the setup commands, once in a container's life, or in a launcher's where there is no container.

    `in_container`: whether an engine may start the launcher again in the same container.
    """

    def __init__(self, launcher: Launcher, in_container: bool) -> None:
        self.launcher = launcher
        self.mark = container_mark() if in_container and launcher.launch.setup else None
        self.done = self.mark is not None and os.path.exists(self.mark)
        self.log = os.path.join(launcher.dir, "logs", "setup.log")

    def run(self) -> bool:
        """Run them, unless that was done. Returns False if an order or a signal has ended them. Raises Problem."""
        if self.done:
            return True
        for command in self.launcher.launch.setup:
            os.makedirs(os.path.dirname(self.log), exist_ok=True)
            with contextlib.ExitStack() as opened:
                with naming(self.log):
                    # Unbuffered: closing it, which is not named, has nothing left to write.
                    file = opened.enter_context(open(self.log, "ab", buffering=0))
                    file.write(b"+ %s\n" % command.encode())
                code = self.run_one(command, file.fileno())
            if not self.launcher.lease.held(boot_time()):
                raise Problem(self.launcher.lease.why_over(), fenced())
            if code is None:
                return False
            if code != 0:
                failure = Failure("setup", None, None, code, "setup.log", time.time(), last_lines(self.log))
                raise Problem("setup command `%s` ended with code %d" % (command, code), failure)
        self.done = True
        if self.mark is not None:
            with contextlib.suppress(OSError), open(self.mark, "w"):
                pass
        return True

    def run_one(self, command: str, log: int) -> Optional[int]:
        """Run one setup command; return its exit code, None if it is ended because what runs is to end. Raises Problem."""
        launcher = self.launcher
        environ = {**os.environ, **secret_values(launcher.launch.secrets, launcher.secrets)}
        try:
            child = spawn(["/bin/sh", "-c", command], environ, launcher.launch.workdir, log)
        except OSError as error:
            raise cannot_start("/bin/sh", error) from error
        while True:
            code = child.poll()
            ends = self.is_to_end()
            if code is None and not ends:
                launcher.pause(POLL_SETUP)
                continue
            kill_descendants()
            # What ends this launcher may have ended the command first, as where a host shuts down.
            if code is None or (ends and code != 0):
                return None
            return code if code >= 0 else 128 - code

    def is_to_end(self) -> bool:
        """Say whether what runs is to end: by a signal, as the guard has died, as the lease is over, or by an order."""
        launcher = self.launcher
        told = launcher.signal is not None or os.getppid() != launcher.guard
        return told or not launcher.lease.held(boot_time()) or launcher.orders.tells_to_end()


def secret_values(names: Sequence[str], path: Optional[str]) -> Dict[str, str]:
    """Return the secrets of these names, from the 0600 file that holds them. Raises Problem; OSError for what may pass."""
    if not names:
        return {}
    values = read_secrets(path)
    missing = [name for name in names if name not in values]
    if missing:
        refuse_unreadable(path or "")
        raise Problem("no value for secret %s in %s" % (", ".join(missing), path), start_failure(None))
    return {name: str(values[name]) for name in names}


def refuse_unreadable(path: str) -> None:
    """Raise OSError for a file that cannot be read just now, as its disk fails: then nobody knows what it holds."""
    try:
        with naming(path), open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        if may_pass(error):
            raise
