"""Locks between commands on this machine: held by the kernel, so a killed holder leaves none behind.

One that is stopped, as by Ctrl-Z, keeps the lock of a job for no longer than EXPIRY. It finds out when it goes on: see
`JobLock`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.untrusted import Json, as_moment, as_number, parse_object
from jobctl.jobspec.deploy.store.files import told_of
from jobctl.jobspec.deploy.store.login import user_name
from jobctl.jobspec.deploy.store.processes import alive, end, is_stopped, start_ticks

WAIT = 30.0  # seconds that a command waits for the lock
LET_GO = 5.0  # seconds that a holder gets to end, when it is told to
EXPIRED = "expired.lock"  # beside a lock: whose turn it is to take that away from a holder that is stopped


class Locked(Exception):
    """Someone else holds the lock, written `age` seconds ago; `holder` says who, if they did that, `where` on which host."""

    def __init__(self, holder: Json, age: float | None = None, where: str | None = None) -> None:
        self.holder, self.age = holder, age
        super().__init__(_describe(holder, age, where))


def _describe(holder: Json, age: float | None, where: str | None) -> str:
    place = f" on {where}" if where else ""
    if not holder:
        return f"locked{place} by a process that did not say who it is"
    since = as_moment(holder.get("since"))
    seconds = age if age is not None else None if since is None else max(0.0, time.time() - since)
    return (
        f"locked{place} by `{holder.get('command')}` (pid {holder.get('pid')} of {holder.get('user')}"
        f" on {holder.get('host')})" + ("" if seconds is None else f" for {seconds:.0f} s")
    )


class LockLost(DeployError):
    """The lock was lost somewhere: someone else may be at work now. `begun`: something may have been changed by then."""

    begun = True


@contextlib.contextmanager
def nothing_begun() -> Iterator[None]:
    """Look at the lock before anything is changed. Raises LockLost that says so."""
    try:
        yield
    except LockLost as lost:
        lost.begun = False
        raise


class Hold:
    """A lock that this process has, unless it was taken away: with `--break-lock`, or while this process was stopped."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle

    def is_lost(self) -> bool:
        """Say whether others can have the lock by now."""
        return not _is_at(self._path, os.fstat(self._handle).st_ino)

    def check(self) -> None:
        """Raise LockLost if others can have the lock by now."""
        if self.is_lost():
            hint = "another command took it, as it may while this one is stopped (Ctrl-Z); repeat this command to go on"
            raise LockLost("the lock on this machine was lost", hint)


class JobLock:
    """The lock of a job on this machine, at `path`. It expires: its holder looks by `check` before it changes anything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hold: Hold | None = None

    @contextlib.contextmanager
    def hold(self, command: str, wait: float | None = None, *, break_it: bool = False) -> Iterator[JobLock]:
        """Hold it for the length of the `with` block; `break_it` takes it away from its holder. Raises Locked, see `hold`."""
        if break_it:
            break_lock(self._path)
        with hold(self._path, command, wait, expires=True) as self._hold:
            try:
                yield self
            finally:
                _leave_no_empty_folder(self._path, self._hold)
                self._hold = None

    def check(self) -> None:
        """Raise LockLost if others can have it by now. Do nothing where it is not held here."""
        if self._hold is not None:
            self._hold.check()


def _leave_no_empty_folder(path: Path, held: Hold) -> None:
    """Remove the folder of the lock if nothing else is in it: the holder has found no job, or left nothing of it."""
    with contextlib.suppress(OSError):
        if os.listdir(path.parent) == [path.name] and not held.is_lost():
            path.unlink()
        path.parent.rmdir()  # which it refuses if another command has begun to write there


class _Watch:
    """The holder of a lock, as somebody sees it who waits for that."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._stopped: tuple[int, float] | None = None  # the inode of its lock, and since when it was seen stopped

    def look(self) -> None:
        """Take the lock away from a holder that has been stopped for EXPIRY."""
        from jobctl.jobspec.deploy.model.liveness import EXPIRY

        with contextlib.suppress(FileNotFoundError):
            inode, pid = os.stat(self._path).st_ino, as_number(read_holder(self._path).get("pid"))
            if pid is None or not is_stopped(pid):
                self._stopped = None
            elif self._stopped is None or self._stopped[0] != inode:
                self._stopped = inode, self._clock()
            elif self._clock() - self._stopped[1] >= EXPIRY:
                _expire(self._path, inode)


def _expire(path: Path, inode: int) -> None:
    """Take away the lock with this inode. Of several who wait, one at a time: another may have taken it already."""
    turn = path.with_name(EXPIRED)
    if (handle := _try(turn)) is None:
        return
    try:
        if _is_at(path, inode):
            break_lock(path)
    finally:
        turn.unlink(missing_ok=True)
        os.close(handle)


def _is_at(path: Path, inode: int) -> bool:
    try:
        return os.stat(path).st_ino == inode
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def hold(
    path: Path,
    command: str,
    wait: float | None = None,
    *,
    expires: bool = False,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Hold]:
    """Hold the lock at `path` for the length of the `with` block.

    Waits up to `wait` seconds (default WAIT); raises Locked after that. The file names the holder for others to read. If the
    lock `expires`, it is taken from a holder that is stopped: one that looks by `Hold.check` before it changes anything.
    """
    deadline, watch = clock() + (WAIT if wait is None else wait), _Watch(path, clock)
    while (handle := _try(path)) is None:
        if clock() >= deadline:
            raise Locked(read_holder(path))
        if expires:
            watch.look()
        pause(0.05)
    try:
        _sign(handle, command)
        yield Hold(path, handle)
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
        os.close(handle)


def _try(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # the last holder has removed the folder since
        return None
    try:
        with told_of(path):  # a file system may have no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, os.fstat(handle).st_ino):
            return handle
    except BlockingIOError:
        pass
    except OSError:
        os.close(handle)
        raise
    # Taken, or the file was replaced meanwhile (`break_lock`, `down`): the lock is on a file nobody sees.
    os.close(handle)
    return None


def _sign(handle: int, command: str) -> None:
    os.ftruncate(handle, 0)
    with contextlib.suppress(OSError):  # on a full disk it is held without a name: `down` makes room
        os.pwrite(handle, json.dumps(describe_holder(command)).encode(), 0)


def describe_holder(command: str) -> Json:
    """Return what a holder says of itself."""
    pid = os.getpid()
    return {
        "command": command,
        "pid": pid,
        "start_ticks": start_ticks(pid),
        "user": user_name(),
        "host": socket.gethostname(),
        "since": time.time(),
    }


def read_holder(path: Path) -> Json:
    """Return what the holder wrote into the lock, or {} if nobody holds it."""
    try:
        holder = parse_object(path.read_bytes()) or {}
    except OSError:
        return {}
    return holder if alive(holder.get("pid"), holder.get("start_ticks")) else {}


def end_holder(path: Path) -> None:
    """End the process that holds the lock, if there is one: SIGTERM, then SIGKILL."""
    holder = read_holder(path)
    if holder:
        end(holder["pid"], holder["start_ticks"], LET_GO)


def break_lock(path: Path) -> None:
    """Take the lock away from its holder: later commands lock a new file."""
    path.unlink(missing_ok=True)
