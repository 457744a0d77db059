"""What all ways to a host share: input in pieces, errors in words, files that arrive whole."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.ports import used_ports
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport import ssh
from jobctl.jobspec.deploy.transport.base import SCRIPTS, Input, Result, checked, problem, put, quote
from jobctl.jobspec.deploy.transport.held_shell import Login
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.deploy.transport.streamlocal import STREAMLOCAL, wire
from jobctl.jobspec.spec.hosts import Host
from tests.tools.waiting import PROMPT


def host_job(folder: Path) -> HostJob:
    made = HostJob(Host("h1", dir=str(folder)), LocalTransport("h1"), "job", "ssh")
    made.use_directories(str(folder / "h1" / "job"), str(folder / "h1" / "job"))
    return made


def pieces() -> Iterator[bytes]:
    yield from (b"one ", b"", b"two")


def test_input_comes_in_pieces_and_stays_until_it_is_skipped() -> None:
    left, read = Input(pieces()), b""
    while left:
        assert left.next(3) == left.next(3)
        read += left.next(3)
        left.skip(len(left.next(3)))
    assert read == b"one two"
    dropped = Input(b"text")
    dropped.drop()
    assert not dropped


@pytest.mark.parametrize(
    ("out", "err", "words"),
    [
        (b"done", b"first\nlast\n", "last"),
        (b"told on stdout\n", b" \n", "told on stdout"),
        (b"", b"it is wrong\nSee 'docker run --help'\n", "it is wrong"),
        (b"", b"", "exit code 3"),
    ],
)
def test_what_a_command_says_last_is_what_went_wrong(out: bytes, err: bytes, words: str) -> None:
    assert Result(3, out, err).words == words


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (b"write error: No space left on device", "disk-full"),
        (b"cannot create directory: read-only file system", "read-only"),
        (b"Permission denied", "no-permission"),
        (b"something else", "command-failed"),
    ],
)
def test_a_common_cause_has_a_code_and_a_remedy(words: bytes, code: str) -> None:
    error = problem("h1", "write it", Result(1, b"", words))
    assert (error.code, error.host, bool(error.hint)) == (code, "h1", code != "command-failed")
    assert error.message.startswith("h1: cannot write it: ")


def test_a_command_that_fails_is_an_error_where_it_has_to_succeed() -> None:
    assert checked(LocalTransport(), ["printf", "text"], "print") == b"text"
    with pytest.raises(HostError, match="cannot look: it is dark"):
        checked(LocalTransport(), ["sh", "-c", "echo it is dark >&2; exit 1"], "look")


@pytest.mark.parametrize(
    "login",
    [
        {"LC_ALL": "", "LC_MESSAGES": "zh_CN.UTF-8", "LC_TIME": "zh_CN.UTF-8"},
        {"LC_ALL": "zh_CN.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8", "LC_TIME": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"},
    ],
    ids=["some", "all"],
)
def test_commands_say_in_english_what_goes_wrong(login: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes and remedies are found by their words; whatever else a login has set is the job's too, on Slurm."""
    for name, value in login.items():
        monkeypatch.setenv(name, value)
    # What setlocale(3) takes for messages and for times.
    said = ["sh", "-c", 'cat; echo "${LC_ALL:-$LC_MESSAGES} ${LC_ALL:-${LC_TIME:-$LANG}}"']
    expected = b"C zh_CN.UTF-8\n"
    transport = LocalTransport()
    assert [transport.run(said, stdin).out for stdin in (b"", iter([b""]))] == [expected] * 2
    with transport.dial(said) as channel:
        channel.shutdown(socket.SHUT_WR)
        assert channel.makefile("rb").read() == expected
    begun = Login().argv(said)
    assert subprocess.run(begun, input=b"", capture_output=True, check=True).stdout.endswith(expected)


def test_a_program_that_is_not_there_is_a_result_and_a_signal_a_code() -> None:
    assert LocalTransport().run(["/no/such/program"]).code == 127
    assert LocalTransport().run(["sh", "-c", "kill -9 $$"]).code == 137


def test_an_input_that_comes_slowly_takes_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that its patience is over, one more piece has come."""
    turns, wanted, written = iter(range(4)), threading.Semaphore(0), threading.Semaphore(0)
    communicate = subprocess.Popen.communicate

    def slowly() -> Iterator[bytes]:
        for _ in range(4):
            assert wanted.acquire(timeout=PROMPT)
            yield b"piece"
            written.release()

    def impatient(process: Any, sent: Any = None, timeout: float | None = None) -> Any:
        if next(turns, None) is None:
            return communicate(process, sent)
        wanted.release()
        assert written.acquire(timeout=PROMPT)
        return communicate(process, sent, 0.01)  # in vain: it has not ended before its input has

    monkeypatch.setattr(subprocess.Popen, "communicate", impatient)
    assert LocalTransport("h1").run(["cat"], slowly(), timeout=PROMPT).out == b"piece" * 4
    assert next(turns, None) is None


def test_a_command_that_reads_its_input_no_more_is_given_up() -> None:
    with pytest.raises(HostError, match=r"h1: `sleep` has not ended after 0.2 s") as caught:
        LocalTransport("h1").run(["sleep", "60"], (bytes(100_000) for _ in range(10)), timeout=0.2)
    assert caught.value.code == "silent"


def test_words_of_a_command_stay_words() -> None:
    words = ["printf", "%s|", "two words", "$HOME", "it's", ""]
    assert LocalTransport().run(["sh", "-c", quote(words)]).out == b"two words|$HOME|it's||"


def test_a_file_arrives_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "-file"
    put(LocalTransport(), str(path), b"text\n", 0o640)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"text\n", 0o640)
    assert [one.name for one in path.parent.iterdir()] == ["-file"]


def test_a_file_that_was_cut_off_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    done = LocalTransport().run(SCRIPTS.argv("put", str(path), "600", "9"), b"half")
    assert (done.code, done.words) == (1, "the connection broke off")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "before")]


def test_ports_are_taken_by_who_listens_and_by_other_jobs(tmp_path: Path) -> None:
    for job, text in (("job", '"port": 1001'), ("other", '"port": 1002, "ports": [1003,\n 1004]')):
        control = tmp_path / "h1" / job / "run" / "control.json"
        control.parent.mkdir(parents=True)
        control.write_text(f"{{{text}}}")
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as bound:
        bound.bind(("0.0.0.0", 0))  # nobody listens there, at no address
        used = used_ports(host_job(tmp_path))
        assert listening.getsockname()[1] in used
        assert bound.getsockname()[1] not in used
    assert {1001, 1002, 1003, 1004} & used == {1002, 1003, 1004}


def test_paramiko_sends_where_a_channel_to_a_socket_leads() -> None:
    """It does so by a method that is its own affair: a new version may call another, and hosts then close the connection."""
    import paramiko

    here, there = socket.socketpair()
    with here, there:
        transport, sent = wire(here), []
        transport.active = True
        transport.clear_to_send.set()
        transport._send_message = lambda message: sent.append(message.asbytes())
        with pytest.raises(paramiko.SSHException, match="Timeout"):  # nobody answers
            transport.open_socket("/run/docker.sock", 0.0)
    (said,) = sent
    assert said.startswith(b"\x5a\0\0\0\x1e" + STREAMLOCAL.encode())
    assert said.endswith(b"\0\0\0\x10/run/docker.sock" + 8 * b"\0")


def test_nobody_waits_to_close_a_connection_that_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose time is over goes, though a host is silent; the connection is closed once it is there."""
    begun, goes_on, closed = threading.Event(), threading.Event(), threading.Event()

    def connect(*_: object) -> Any:
        begun.set()
        assert goes_on.wait(60)
        return SimpleNamespace(is_connected=True)

    monkeypatch.setattr(ssh, "connect", connect)
    monkeypatch.setattr(ssh, "close", lambda connection: closed.set())
    transport = ssh.Ssh(Host("gpu01"), SshOptions())
    threading.Thread(target=transport._open, daemon=True).start()
    assert begun.wait(60)
    transport.close()
    assert not closed.is_set()
    goes_on.set()
    assert closed.wait(60)
    monkeypatch.setattr(ssh, "connect", lambda *_: SimpleNamespace(is_connected=True))
    closed.clear()
    transport._open()
    transport.close()
    assert closed.is_set()
