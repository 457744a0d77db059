"""Locks: on this machine, and on hosts, of which this machine plays several."""

from __future__ import annotations

import contextlib
import io
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobctl.jobspec.deploy.host import lock as hostlock
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model import liveness
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.liveness import EXPIRY
from jobctl.jobspec.deploy.store import lock
from jobctl.jobspec.deploy.store.lock import Locked
from jobctl.jobspec.deploy.store.processes import is_stopped
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host
from tests.tools.waiting import PATIENCE, promptly


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds


def take(path: Path, command: str = "up", wait: float = 1.0) -> None:
    """Take a lock and let go of it."""
    clock = Clock()
    with lock.hold(path, command, wait, clock=clock.now, pause=clock.pause):
        pass


def test_a_lock_is_held_by_one_and_says_by_whom(tmp_path: Path) -> None:
    path, clock = tmp_path / "lock", Clock()
    with lock.hold(path, "up"):
        with (
            pytest.raises(Locked) as locked,
            lock.hold(path, "down", 1.0, clock=clock.now, pause=clock.pause),
        ):
            pass
        assert locked.value.holder["command"] == "up"
        assert 1.0 <= clock.time - 100.0 < 1.1
    assert lock.read_holder(path) == {}


def test_a_lock_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock.hold(tmp_path / "lock", "up"):
        raise ZeroDivisionError
    take(tmp_path / "lock")


def test_a_lock_that_was_broken_is_taken_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock.hold(path, "up"):
        lock.break_lock(path)
        with lock.hold(path, "down", 0.0):
            assert lock.read_holder(path)["command"] == "down"


def test_a_lock_that_its_holder_has_left_behind_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text('{"command": "up", "pid": 1, "start_ticks": -5}')  # another process has that pid by now
    assert lock.read_holder(path) == {}
    take(path, wait=0.0)


# Holds the lock until its stdin ends; says then whether it still has it.
HOLDER = """\
import sys
from pathlib import Path
from jobctl.jobspec.deploy.store import lock
with lock.hold(Path(sys.argv[1]), "up") as held:
    print("held", flush=True)
    sys.stdin.read()
    print("lost" if held.is_lost() else "still held", flush=True)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds `lock`."""
    argv = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def suspend(process: subprocess.Popen[str]) -> None:
    """Stop a process, as Ctrl-Z does."""
    process.send_signal(signal.SIGSTOP)
    promptly(lambda: is_stopped(process.pid))


def go_on(process: subprocess.Popen[str]) -> str:
    """Have a process that was stopped go on to its end; return what it says."""
    process.send_signal(signal.SIGCONT)
    return process.communicate(timeout=PATIENCE)[0]


def test_the_lock_of_a_holder_that_is_stopped_expires(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    path = tmp_path / "lock"
    suspend(holder)
    with pytest.raises(Locked, match="locked by `up`"):
        take(path, wait=EXPIRY - 0.1)
    clock = Clock()
    with lock.hold(path, "down", expires=True, clock=clock.now, pause=clock.pause) as mine:
        assert EXPIRY <= clock.time - 100.0 < EXPIRY + 0.2
        assert go_on(holder) == "lost\n"
        assert (mine.is_lost(), lock.read_holder(path)["command"]) == (False, "down")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_the_lock_of_a_job_expires_and_says_so_to_who_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: subprocess.Popen[str]
) -> None:
    monkeypatch.setattr(liveness, "EXPIRY", 0.0)  # however long that takes
    mine = lock.JobLock(tmp_path / "lock")
    mine.check()  # one that was never held is not lost
    suspend(holder)
    with mine.hold("down") as held:
        held.check()
        lock.break_lock(tmp_path / "lock")
        with lock.JobLock(tmp_path / "lock").hold("stop", 0.0), pytest.raises(lock.LockLost, match="on this machine"):
            mine.check()
    mine.check()
    assert go_on(holder) == "lost\n"


def test_a_lock_at_which_no_holder_looks_again_does_not_expire(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    suspend(holder)
    clock = Clock()
    with pytest.raises(Locked), lock.hold(tmp_path / "lock", "down", 2 * EXPIRY, clock=clock.now, pause=clock.pause):
        pass
    assert go_on(holder) == "still held\n"


def test_a_holder_that_goes_on_in_time_keeps_its_lock(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    clock = Clock()

    def pause(seconds: float) -> None:
        before, clock.time = clock.time, clock.time + seconds
        if before < 110.0 <= clock.time:
            holder.send_signal(signal.SIGCONT)
            promptly(lambda: not is_stopped(holder.pid))
        elif before < 111.0 <= clock.time:
            suspend(holder)

    suspend(holder)
    with pytest.raises(Locked), lock.hold(tmp_path / "lock", "down", 20.0, expires=True, clock=clock.now, pause=pause):
        pass
    assert go_on(holder) == "still held\n"


def test_one_of_several_who_wait_gets_a_lock_that_expires(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    path, mine, other = tmp_path / "lock", Clock(), Clock()

    def pause(seconds: float) -> None:
        mine.time += seconds
        if mine.time >= 100.0 + EXPIRY > mine.time - seconds:  # the lock would be ours with the next look
            first.enter_context(lock.hold(path, "stop", expires=True, clock=other.now, pause=other.pause))

    suspend(holder)
    with (
        contextlib.ExitStack() as first,
        pytest.raises(Locked, match="locked by `stop`"),
        lock.hold(path, "down", expires=True, clock=mine.now, pause=pause),
    ):
        pass


# On hosts.


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells have as long as it takes to let go."""
    monkeypatch.setattr(hostlock, "FREE_TIMEOUT", PATIENCE)


class Gone(LocalTransport):
    """A host that does not answer."""

    def dial(self, argv: object) -> object:
        raise HostError(self.host, "unreachable", "no route to it")


def host_jobs(folder: Path, *names: str, gone: str = "") -> list[HostJob]:
    """Hosts with a folder each on this machine."""
    return [
        HostJob(Host(name, dir=str(folder / name)), Gone(name) if name == gone else LocalTransport(name), "job", "ssh")
        for name in names
    ]


def test_a_lock_on_hosts_is_held_by_one_and_free_at_once_afterwards(tmp_path: Path) -> None:
    both = host_jobs(tmp_path, "h1", "h2")
    with hostlock.hold_on(both, "lock", "up") as held:
        assert sorted(held.channels) == ["h1", "h2"]
        with pytest.raises(Locked) as locked, hostlock.hold_on(both, "lock", "down", wait=0.0):
            pass
        assert "locked on h1 by `up`" in str(locked.value)
        held.check()
    with hostlock.hold_on(both, "lock", "down", wait=0.0) as held:
        held.check()


def test_who_gets_a_lock_on_some_hosts_only_lets_go_of_these(tmp_path: Path) -> None:
    first, second = host_jobs(tmp_path, "h1", "h2")
    with hostlock.hold_on([second], "lock", "up"):
        with pytest.raises(Locked), hostlock.hold_on([first, second], "lock", "down", wait=0.0):
            pass
        with hostlock.hold_on([first], "lock", "other", wait=0.0) as held:
            held.check()


def test_a_host_that_does_not_answer_is_left_out_of_a_lock(tmp_path: Path) -> None:
    with hostlock.hold_on(host_jobs(tmp_path, "h1", "h2", gone="h1"), "lock", "up") as held:
        assert (sorted(held.channels), sorted(held.failed)) == (["h2"], ["h1"])
        held.lost["h1"] = "its connection broke off"  # it was known to be gone
        held.check()
        held.lost["h2"] = "it does not answer"
        with pytest.raises(hostlock.LockLost, match=r"^the lock on h2 was lost: it does not answer$"):
            held.check()
        held.failed.clear()
        why = "h1: its connection broke off; h2: it does not answer"
        with pytest.raises(hostlock.LockLost, match=f"^the lock on h1, h2 was lost: {why}$"):
            held.check()


class Ended:
    """The channel of a command that held a lock, and has ended."""

    def __init__(self, said: bytes = b"", connection: object = None) -> None:
        self.said, self.connection = said, connection

    def get_transport(self) -> object:
        return self.connection

    def sendall(self, data: bytes) -> None:
        raise OSError("Socket is closed")

    def recv(self, size: int) -> bytes:
        return self.said

    def shutdown(self, how: int) -> None:
        raise OSError("Socket is closed")

    def settimeout(self, seconds: float) -> None:
        raise OSError("Socket is closed")

    def close(self) -> None:
        """There is nothing to close."""


def gone(why_closed: str | None, saved: Exception | None = None) -> SimpleNamespace:
    return SimpleNamespace(is_active=lambda: False, why_closed=why_closed, saved_exception=saved)


@pytest.mark.parametrize(
    ("channel", "why"),
    [
        (Ended(b"ended 124\n"), "the host heard nothing of this command for 15 s"),
        (Ended(b"ended 143\n"), "what held it has ended with code 143"),
        (Ended(), "what held it has ended (Socket is closed)"),
        (Ended("ended \u00b2\n".encode()), "what held it has ended (Socket is closed)"),
        (Ended(connection=gone("it does not answer")), "it does not answer"),
        (Ended(connection=gone(None, EOFError("reset"))), "its connection broke off (reset)"),
    ],
)
def test_a_lock_that_is_lost_says_why(monkeypatch: pytest.MonkeyPatch, channel: Ended, why: str) -> None:
    monkeypatch.setattr(hostlock, "TICK", 0.01)
    held = hostlock.Held()
    try:
        held.channels = {"h1": channel}
        promptly(lambda: held.lost)
        with pytest.raises(hostlock.LockLost, match=f"^the lock on h1 was lost: {re.escape(why)}$"):
            held.check()
    finally:
        held.release()


def test_who_has_slept_has_lost_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may be at work by now. Its own next tick would tell, but that may be seconds away."""
    monkeypatch.setattr(hostlock, "TICK", PATIENCE)
    clock = Clock()
    held = hostlock.Held(clock.now)
    try:
        held.channels = {"h1": io.BytesIO()}
        clock.pause(EXPIRY)
        held.check()
        clock.pause(1.0)
        with pytest.raises(hostlock.LockLost, match="the lock on h1 was lost: this machine or jobctl has slept"):
            held.check()
        clock.time -= 1.0  # as after its next tick
        with pytest.raises(hostlock.LockLost, match="the lock on h1 was lost"):
            held.check()
    finally:
        held.channels = {}
        held.release()


def test_where_no_host_answers_there_is_no_lock(tmp_path: Path) -> None:
    with pytest.raises(HostError), hostlock.hold_on(host_jobs(tmp_path, "h1", gone="h1"), "lock", "up"):
        pass


def test_each_host_that_could_not_be_locked_says_why(tmp_path: Path) -> None:
    both = [*host_jobs(tmp_path, "h1", gone="h1"), *host_jobs(tmp_path, "h2", gone="h2")]
    with pytest.raises(hostlock.NotLocked) as none, hostlock.hold_on(both, "lock", "stop"):
        pass
    assert [error.message for error in none.value.failures.values()] == ["h1: no route to it", "h2: no route to it"]
    assert (none.value.message, none.value.code) == ("no host could be locked", "unreachable")


@pytest.mark.parametrize(
    ("answer", "code"),
    [("failed sh: 1: cannot create lock: Permission denied", "no-permission"), ("", "lock-failed")],
)
def test_what_keeps_a_host_from_locking_is_its_error(answer: str, code: str) -> None:
    hostlock.check_answer("held", "h1", "/w/lock")
    with pytest.raises(HostError) as error:
        hostlock.check_answer(answer, "h1", "/w/lock")
    assert error.value.code == code


def test_a_lock_that_is_taken_says_since_when() -> None:
    with pytest.raises(Locked, match=r"locked on h1 by `up` \(pid 7 of ml on a\) for 12 s"):
        hostlock.check_answer('taken 12 {"command": "up", "pid": 7, "user": "ml", "host": "a"}', "h1", "/w/lock")


def test_a_lock_names_its_user_where_no_variable_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert lock.describe_holder("up")["user"] == pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize("theirs", ["link", "folder", None])
def test_a_folder_of_somebody_else_gets_neither_lock_nor_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str | None
) -> None:
    """Where the work directory is shared, they are below /var/tmp, where anybody may make a folder of that name."""
    uid = f"{os.getpid()}{tmp_path.parent.name.removeprefix('pytest-')}"
    top = Path(f"/var/tmp/jobctl-{uid}")
    stat = f'case $1 in -f) echo nfs ;; *) exec {shutil.which("stat")} "$@" ;; esac'
    for name, does in (("stat", stat), ("id", f"echo {uid}")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    host_job = HostJob(Host("h0", dir=str(tmp_path / "dir")), LocalTransport("h0"), "job", "ssh")
    (tmp_path / "trap").mkdir()
    try:
        if theirs == "link":
            top.symlink_to(tmp_path / "trap")
        elif theirs == "folder":
            if os.geteuid() != 0:
                pytest.skip("only root makes a folder of somebody else")
            top.mkdir()
            os.chown(top, 65534, 65534)
        if theirs is None:
            with hostlock.hold_on([host_job], "lock", "up", 0.0):
                assert (top.stat().st_mode & 0o777, (top / "h0" / "job" / "lock").exists()) == (0o700, True)
            return
        with pytest.raises(HostError, match=f"Permission denied: {top} "):
            host_job.send_secrets({"KEY": "value"})
        with pytest.raises(HostError) as caught, hostlock.hold_on([host_job], "lock", "up", 0.0):
            pass
        assert f"Permission denied: {top} " in caught.value.message
        assert (caught.value.code, list((tmp_path / "trap").iterdir())) == ("no-permission", [])
    finally:
        top.unlink() if top.is_symlink() else shutil.rmtree(top)
