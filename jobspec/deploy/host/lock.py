"""Locks on hosts: held by a command there that ends when it hears nothing from its holder any more.

The kernel of each host holds the lock (flock) for a shell that reads a tick every few seconds over the SSH
connection. The holder's end closes the connection and so frees the lock at once; a cut cable frees it EXPIRY seconds
after the last tick, by the host's own clock.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.liveness import EXPIRY
from jobctl.jobspec.deploy.model.untrusted import number_in, parse_object
from jobctl.jobspec.deploy.store.lock import WAIT, Locked, LockLost, describe_holder
from jobctl.jobspec.deploy.transport.answers import MAX_LINE_BYTES, bound
from jobctl.jobspec.deploy.transport.base import Result, problem
from jobctl.jobspec.deploy.transport.fanout import failures_of, fan_out
from jobctl.jobspec.launcher.system.processes import boot_time

TICK = 4.0  # seconds
ANSWER_TIMEOUT = 20.0  # seconds within which a host says whether the lock is free
RETRY = 0.2  # seconds between two attempts at a lock that is taken
SUPERVISOR = "supervisor"  # the command in whose name a supervisor holds the lock
TIMED_OUT_CODE = 124  # exit code of timeout(1)
FREE_TIMEOUT = 2.0  # seconds within which hosts that are still there free a lock


class NotLocked(HostError):
    """Not one of several hosts could be locked; `failures` says why, for each."""

    def __init__(self, failures: Mapping[str, HostError]) -> None:
        super().__init__(next(iter(failures)), "unreachable", "")
        self.message, self.failures = "no host could be locked", failures
        self.hint = "repeat the command once that is fixed on one of them"


class Held:
    """A lock that is held on several hosts, for as long as somebody ticks. `clock` goes on while the machine sleeps."""

    def __init__(self, clock: Callable[[], float] = boot_time) -> None:
        self.channels: dict[str, Any] = {}
        self.lost: dict[str, str] = {}  # hosts where it is lost, and why
        self.failed: dict[str, DeployError] = {}  # hosts that could not be locked: they do not answer
        self._clock, self._ticked = clock, clock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True, name="lock")
        self._thread.start()

    def _tick(self) -> None:
        while not self._end.wait(TICK):
            self._note_pause()
            self._ticked = self._clock()
            for host, channel in list(self.channels.items()):
                try:
                    channel.sendall(b"\n")
                except Exception as error:  # of paramiko too; the other hosts are to be ticked on
                    if host not in self.lost:
                        self.lost[host] = _why_ended(channel, error)

    def _note_pause(self) -> None:
        """Take note of a time without ticks after which hosts have freed it: this process or machine has slept."""
        if self._clock() - self._ticked > EXPIRY:
            why = f"this machine or jobctl has slept for more than {EXPIRY} s"
            self.lost = {**dict.fromkeys(self.channels, why), **self.lost}

    def check(self) -> None:
        """Raise LockLost if the lock was lost on a host that is not known to be gone, or is held nowhere."""
        if not self.channels:
            raise LockLost("there is nothing to lock: the job is down", "`jobctl up` starts it")
        self._note_pause()
        lost = {host: why for host, why in sorted(self.lost.items()) if host not in self.failed}
        if lost:
            raise _lost(lost)

    def check_on(self, host: str) -> None:
        """Raise LockLost if the lock was lost on this host. Do nothing where it is not held there."""
        self._note_pause()
        if host in self.lost:
            raise _lost({host: self.lost[host]})

    def release(self) -> None:
        """Let go of it. When this returns it is free on all hosts that answer: the shells that held it have ended."""
        self._end.set()
        channels = list(self.channels.values())
        for channel in channels:
            with contextlib.suppress(OSError, EOFError):
                channel.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + FREE_TIMEOUT
        for channel in channels:
            with contextlib.suppress(OSError, EOFError), contextlib.closing(channel):
                channel.settimeout(max(0.0, deadline - time.monotonic()))
                while channel.recv(4096):
                    pass


def _lost(lost: Mapping[str, str]) -> LockLost:
    """Return the error of a lock that was lost on hosts; `lost` says why."""
    reasons = set(lost.values())
    why = next(iter(reasons)) if len(reasons) == 1 else "; ".join(f"{host}: {why}" for host, why in lost.items())
    return LockLost(f"the lock on {', '.join(lost)} was lost: {why}", "repeat the command to go on")


@contextlib.contextmanager
def hold_on(
    host_jobs: Sequence[HostJob],
    name: str,
    command: str,
    wait: float = WAIT,
    *,
    break_it: bool = False,
    stay: bool = False,
) -> Iterator[Held]:
    """Hold the lock `name` of a job on all of its `host_jobs` that can be reached.

    The first host decides between two who want it at the same time. Waits up to `wait` seconds; raises Locked after
    that, and HostError if no host can be reached. To `stay`, as a supervisor does, is to hold nothing where the job is
    down: the lock would be left behind.
    """
    me = json.dumps(describe_holder(command))
    how = "break" if break_it else "stay" if stay or command == SUPERVISOR else ""
    deadline = time.monotonic() + wait
    while True:
        held = Held()
        try:
            _acquire(held, host_jobs, name, me, how)
            break
        except Locked:
            held.release()
            if time.monotonic() >= deadline:
                raise
            time.sleep(RETRY)
        except BaseException:
            held.release()
            raise
    try:
        yield held
    finally:
        held.release()


def _acquire(held: Held, host_jobs: Sequence[HostJob], name: str, me: str, how: str) -> None:
    """Take the lock on all hosts that answer. Raises Locked, or HostError if none does."""
    rest = list(host_jobs)
    failed: dict[str, HostError] = {}
    while rest and not held.channels:
        host_job = rest.pop(0)
        try:
            _acquire_one(held, host_job, name, me, how)
        except HostError as error:
            failed[host_job.host.name] = error
    held.failed |= failed
    if not held.channels and failed:
        raise NotLocked(failed) if len(failed) > 1 else next(iter(failed.values()))
    taken: list[Locked] = []

    def acquire(host_job: HostJob) -> None:
        try:
            _acquire_one(held, host_job, name, me, how)
        except Locked as locked:
            taken.append(locked)

    outcome = fan_out(rest, acquire)
    held.failed |= failures_of(outcome)
    if taken:
        raise taken[0]


def _acquire_one(held: Held, host_job: HostJob, name: str, me: str, how: str) -> None:
    """Take the lock on one host, unless there is nothing to lock. Raises Locked or HostError."""
    path = "the job"
    channel = host_job.transport.dial(SCRIPTS.argv("hold", *host_job.place_arguments, name, me, how, str(EXPIRY)))
    try:
        channel.settimeout(ANSWER_TIMEOUT)
        work, own, answer = _lines(host_job.host.name, channel, 3)
        path = f"{own}/{name}"
        host_job.use_directories(work, own)
        if answer == "gone":
            channel.close()
            return
        check_answer(answer, host_job.host.name, path)
    except (OSError, EOFError) as error:
        channel.close()
        why = str(error) or f"it has not answered within {ANSWER_TIMEOUT:g} s"
        hint = "look at the host and its network; the same command again goes on"
        raise HostError(host_job.host.name, "silent", f"cannot lock {path}: {why}", hint) from error
    except (Locked, HostError):
        channel.close()
        raise
    channel.settimeout(TICK)
    held.channels[host_job.host.name] = channel


def check_answer(answer: str, host: str, path: str) -> None:
    """Raise Locked or HostError unless LOCK said that we have it."""
    word, _, rest = answer.partition(" ")
    if word == "held":
        return
    if word == "failed":
        raise problem(host, f"lock {path}", Result(1, b"", rest.encode()))
    if word != "taken":
        raise HostError(
            host,
            "lock-failed",
            f"cannot lock {path}",
            "is `flock` (util-linux) there, and the directory writable? `dir=` in the hosts file chooses another",
        )
    age, _, text = rest.partition(" ")
    raise Locked(parse_object(text) or {}, age=number_in(age), where=host)


def _why_ended(channel: Any, error: Exception) -> str:
    """Return why what held a lock on a host takes no tick any more; `error` is what a tick got."""
    connection = getattr(channel, "get_transport", lambda: None)()  # None where a socket leads to a program here
    if connection is not None and not connection.is_active():
        return connection.why_closed or f"its connection broke off ({connection.saved_exception or error})"
    said = b""
    with contextlib.suppress(OSError, EOFError):
        said = channel.recv(MAX_LINE_BYTES)
    word, _, number = said.decode("utf-8", "replace").strip().rpartition("ended ")
    code = number_in(number)
    if word or code is None:
        return f"what held it has ended ({error or type(error).__name__})"
    silent = f"the host heard nothing of this command for {EXPIRY} s"
    return silent if code == TIMED_OUT_CODE else f"what held it has ended with code {code}"


def _lines(host: str, channel: Any, count: int) -> list[str]:
    """Return the first lines that come. Raises EOFError if fewer do."""
    data = b""
    while data.count(b"\n") < count:
        more = channel.recv(4096)
        if not more:
            raise EOFError("the connection was lost, or its shell has ended")
        data += more
        bound(host, "who keeps its lock", len(data), MAX_LINE_BYTES)
    return data.decode("utf-8", "replace").split("\n")[:count]
