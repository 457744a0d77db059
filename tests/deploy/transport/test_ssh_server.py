"""The SSH server that leads into a node: a client on the other end of a socket pair, and this machine as the node."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import CannotRun, DeployError
from jobctl.jobspec.deploy.ssh_server import server as server_module
from jobctl.jobspec.deploy.ssh_server.keys import Keys, keys_of
from jobctl.jobspec.deploy.ssh_server.server import serve
from jobctl.jobspec.deploy.ssh_server.stdio import Stdio
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.local.session import ProcessSession
from tests.tools.waiting import promptly

WAIT = 60.0


@dataclass
class Server:
    """A server that waits for a client, and the client's end of the connection."""

    keys: Keys
    client: paramiko.Transport
    serving: threading.Thread
    problems: list[str]

    def login(self) -> None:
        self.client.start_client(timeout=WAIT)
        self.client.auth_publickey("anybody", self.keys.user)

    def session(self) -> paramiko.Channel:
        channel = self.client.open_session(timeout=WAIT)
        channel.settimeout(WAIT)
        return channel

    def run(self, command: str, typed: bytes = b"") -> tuple[int, bytes, bytes]:
        channel = self.session()
        channel.exec_command(command)
        sending = threading.Thread(target=lambda: (channel.sendall(typed), channel.shutdown_write()))
        sending.start()
        out = everything(channel.recv)
        err = everything(channel.recv_stderr)
        sending.join(WAIT)
        return channel.recv_exit_status(), out, err


def everything(read: Any) -> bytes:
    found = b""
    while data := read(65536):
        found += data
    return found


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    return JobDir(tmp_path / "jobs" / "resnet")


@pytest.fixture
def server(job: JobDir, tmp_path: Path) -> Iterator[Server]:
    ours, theirs = socket.socketpair()
    keys = keys_of(job)
    session = ProcessSession({**os.environ, "MINE": "yes"}, str(tmp_path), "127.0.0.2")
    problems: list[str] = []

    def run() -> None:
        try:
            serve(ours, keys, session, threading.Event())
        except DeployError as error:
            problems.append(error.message)

    serving = threading.Thread(target=run)
    serving.start()
    client = paramiko.Transport(theirs)
    client.banner_timeout = client.handshake_timeout = client.auth_timeout = WAIT
    yield Server(keys, client, serving, problems)
    client.close()
    serving.join(WAIT)
    assert not serving.is_alive()


@pytest.fixture
def inside(server: Server) -> Server:
    server.login()
    return server


def test_a_command_has_its_streams_and_exit_code(inside: Server, tmp_path: Path) -> None:
    told = inside.run("cat; echo $MINE; pwd; echo err >&2; exit 9", b"typed ")
    assert told == (9, f"typed yes\n{tmp_path}\n".encode(), b"err\n")


def test_much_goes_both_ways(inside: Server) -> None:
    data = os.urandom(3_000_000)
    assert inside.run("cat", data) == (0, data, b"")


def test_commands_run_side_by_side(inside: Server) -> None:
    first, second = inside.session(), inside.session()
    first.exec_command("read line; echo first $line")
    second.exec_command("echo second")
    assert second.makefile("rb").read() == b"second\n"
    first.sendall(b"ends\n")
    assert first.makefile("rb").read() == b"first ends\n"


def test_a_client_is_told_that_a_command_begins_before_it_ends(inside: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    class AtOnce(threading.Thread):
        def start(self) -> None:
            serves = getattr(self._target, "__name__", None) == "_serve"  # a thread forgets it at its end
            super().start()
            if serves:
                self.join()

    monkeypatch.setattr(server_module.threading, "Thread", AtOnce)
    channel = inside.session()
    channel.exec_command("echo quick")
    assert channel.makefile("rb").read() == b"quick\n"


def test_a_shell_reads_what_is_typed(inside: Server) -> None:
    channel = inside.session()
    channel.invoke_shell()
    channel.sendall(b"echo a $MINE; exit 3\n")
    channel.shutdown_write()
    assert (channel.makefile("rb").read().splitlines()[-1], channel.recv_exit_status()) == (b"a yes", 3)


def test_a_terminal_has_the_clients_kind_and_size(inside: Server) -> None:
    channel = inside.session()
    channel.get_pty("vt220", 101, 33)
    channel.exec_command("trap 'stty size; exit 4' WINCH; echo $TERM; stty size; while :; do sleep 0.05; done")
    lines = channel.makefile("rb")
    assert [lines.readline().strip() for _ in range(2)] == [b"vt220", b"33 101"]
    channel.resize_pty(90, 20)
    assert (lines.readline().strip(), channel.recv_exit_status()) == (b"20 90", 4)


def test_of_a_clients_variables_its_language_is_passed_on(inside: Server) -> None:
    channel = inside.session()
    channel.set_environment_variable("LC_TIME", "C.UTF-8")
    channel.set_environment_variable("PYTHONSTARTUP", "/tmp/evil.py")
    channel.exec_command("echo $LC_TIME,$PYTHONSTARTUP")
    assert channel.makefile("rb").read() == b"C.UTF-8,\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_hangs_up_if_its_client_closes_the_session(inside: Server, tmp_path: Path, terminal: bool) -> None:
    channel = inside.session()
    if terminal:
        channel.get_pty()
    channel.exec_command("trap 'touch hung; exit' HUP; touch runs; while :; do sleep 0.05; done")
    promptly((tmp_path / "runs").exists)
    channel.close()
    promptly((tmp_path / "hung").exists)


def test_a_command_hangs_up_if_its_client_goes(inside: Server, tmp_path: Path) -> None:
    inside.session().exec_command("trap 'touch hung; exit' HUP; touch runs; while :; do sleep 0.05; done")
    promptly((tmp_path / "runs").exists)
    inside.client.close()
    inside.serving.join(WAIT)
    promptly((tmp_path / "hung").exists)


def test_what_a_command_has_left_running_goes_on(inside: Server, tmp_path: Path) -> None:
    """An editor's server outlives the window that has started it, and the next one finds it."""
    channel = inside.session()
    left = "while [ ! -e end ]; do touch ticks; sleep 0.05; done"
    channel.exec_command(f"trap 'touch hung; exit' HUP; sh -c '{left}' </dev/null >/dev/null 2>&1 & wait; wait")
    ticks = tmp_path / "ticks"
    promptly(ticks.exists)
    channel.close()
    promptly((tmp_path / "hung").exists)
    before = ticks.stat().st_mtime_ns
    promptly(lambda: ticks.stat().st_mtime_ns > before)
    before = ticks.stat().st_mtime_ns
    promptly(lambda: ticks.stat().st_mtime_ns > before)
    (tmp_path / "end").touch()


class Leaving(ProcessSession):
    """The inside of a node that goes after the first look at it."""

    looks = 0

    def why_gone(self) -> str | None:  # type: ignore[override]
        self.looks += 1
        return "the container of node 1 on gpu01 has ended" if self.looks > 1 else None


def test_a_connection_ends_once_its_node_has_gone(job: JobDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a dead host its connection says nothing, and a client's own questions are answered on this machine."""
    monkeypatch.setattr(server_module, "NODE_CHECK_INTERVAL", 0.05)
    ours, theirs = socket.socketpair()
    problems: list[DeployError] = []

    def run() -> None:
        try:
            serve(ours, keys_of(job), Leaving({}, None, "127.0.0.2"), threading.Event())
        except DeployError as error:
            problems.append(error)

    serving = threading.Thread(target=run)
    serving.start()
    client = paramiko.Transport(theirs)
    try:
        client.start_client(timeout=WAIT)
        promptly(lambda: not client.is_active())
    finally:
        client.close()
        serving.join(WAIT)
    assert [(one.message, one.hint) for one in problems] == [
        ("the container of node 1 on gpu01 has ended", "connect again: that leads to where the node is then")
    ]


@pytest.fixture
def files(inside: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[paramiko.SFTPClient]:
    """A client of the server that the node's Python is, whether this machine has a server or not."""
    monkeypatch.setattr(server_module, "SCRIPTS", OnlyPython())
    channel = inside.session()
    channel.invoke_subsystem("sftp")
    client = paramiko.SFTPClient(channel)
    yield client
    client.close()


class OnlyPython:
    """What is run for SFTP in an image without a server."""

    def argv(self, name: str, *args: str) -> list[str]:
        found = SCRIPTS.argv(name, *args)
        assert (name, found[-2]) == ("sftp", "python3")
        return [sys.executable, "-c", found[-1]]


def test_files_go_in_and_out_where_the_image_has_no_sftp_server(files: paramiko.SFTPClient, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    files.putfo(io.BytesIO(data), str(tmp_path / "a ü"))
    files.rename(str(tmp_path / "a ü"), str(tmp_path / "b"))
    files.chmod(str(tmp_path / "b"), 0o640)
    files.utime(str(tmp_path / "b"), (1, 2))
    back = io.BytesIO()
    files.getfo(str(tmp_path / "b"), back)
    seen = files.stat(str(tmp_path / "b"))
    assert (back.getvalue() == data, seen.st_size, seen.st_mtime) == (True, len(data), 2)
    assert stat.S_IMODE(seen.st_mode or 0) == 0o640
    with files.open(str(tmp_path / "b"), "a") as file:
        file.write(b"more")
        file.flush()
        file.truncate(7)
    assert (tmp_path / "b").read_bytes() == data[:7]


def test_folders_and_links_by_sftp(files: paramiko.SFTPClient, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    files.mkdir(str(folder), 0o700)
    for number in range(250):  # more than one answer has
        (folder / str(number)).touch()
    files.symlink("0", str(folder / "link"))
    assert (os.readlink(folder / "link"), files.readlink(str(folder / "link"))) == ("0", "0")
    assert sorted(files.listdir(str(folder))) == sorted(os.listdir(folder))
    kinds = {one.filename: str(one)[:10] for one in files.listdir_attr(str(tmp_path))}
    assert kinds["folder"] == "drwx------"
    assert stat.S_ISLNK(files.lstat(str(folder / "link")).st_mode or 0)
    assert files.normalize(str(folder / ".." / "folder" / "link")) == str(folder / "0")
    assert files.normalize(".") == str(tmp_path)
    for path in folder.iterdir():
        files.remove(str(path))
    files.rmdir(str(folder))
    assert not folder.exists()


def test_what_cannot_be_done_by_sftp_is_told(files: paramiko.SFTPClient, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "new").write_text("new")
    with pytest.raises(FileNotFoundError):
        files.stat(str(tmp_path / "nothing"))
    with pytest.raises(OSError, match="exists already"):
        files.rename(str(tmp_path / "new"), str(tmp_path / "there"))
    with pytest.raises(OSError, match="Is a directory"):
        files.open(str(tmp_path), "w")
    files.posix_rename(str(tmp_path / "new"), str(tmp_path / "there"))
    assert (tmp_path / "there").read_text() == "new"


def test_ports_are_those_of_the_node(inside: Server) -> None:
    with socket.create_server(("127.0.0.2", 0)) as node:
        channel = inside.client.open_channel("direct-tcpip", ("localhost", node.getsockname()[1]), ("127.0.0.1", 0))
        channel.settimeout(WAIT)
        connection, _ = node.accept()
        with connection:
            channel.sendall(b"ping")
            assert connection.recv(10) == b"ping"
            connection.sendall(b"pong")
            assert channel.recv(10) == b"pong"
    with pytest.raises(paramiko.ChannelException) as closed:
        inside.client.open_channel("direct-tcpip", ("127.0.0.1", 1), ("127.0.0.1", 0))
    assert closed.value.code == 2


def test_what_is_not_given(inside: Server) -> None:
    with pytest.raises(paramiko.ChannelException) as prohibited:
        inside.client.open_channel("direct-tcpip", ("10.0.0.1", 80), ("127.0.0.1", 0))
    assert prohibited.value.code == 1
    with pytest.raises(paramiko.ChannelException):
        inside.client.open_channel("x11", src_addr=("127.0.0.1", 0))
    with pytest.raises(paramiko.SSHException):
        inside.session().invoke_subsystem("netconf")
    with pytest.raises(paramiko.SSHException):
        inside.client.request_port_forward("127.0.0.1", 0)


def test_only_the_jobs_key_gets_in(server: Server, tmp_path: Path) -> None:
    server.client.start_client(timeout=WAIT)
    assert server.client.get_remote_server_key() == server.keys.host
    for key in (paramiko.ECDSAKey.generate(), keys_of(JobDir(tmp_path / "jobs" / "other")).user):
        with pytest.raises(paramiko.AuthenticationException):
            server.client.auth_publickey("root", key)
    with pytest.raises(paramiko.BadAuthenticationType) as wanted:
        server.client.auth_password("root", "")
    assert wanted.value.allowed_types == ["publickey"]
    with pytest.raises(paramiko.SSHException):
        server.client.open_session(timeout=WAIT)


def test_a_client_that_speaks_no_ssh(job: JobDir) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"GET / HTTP/1.0\r\n\r\n")
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(DeployError, match="the SSH client has ended the connection: "):
        serve(ours, keys_of(job), ProcessSession({}, None, "127.0.0.2"), threading.Event())
    theirs.close()


def test_keys_are_made_once_and_for_the_user_alone(job: JobDir) -> None:
    first, again = keys_of(job), keys_of(job)
    assert (first.host, first.user) == (again.host, again.user)
    assert first.host != first.user
    files = [job.ssh_host_key, job.ssh_user_key, job.known_hosts]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 3
    assert job.known_hosts.read_text() == f"jobctl-resnet-* ecdsa-sha2-nistp256 {first.host.get_base64()}\n"
    job.known_hosts.write_text("jobctl-resnet-* ecdsa-sha2-nistp256 AAAA\n")
    assert keys_of(job).host == first.host
    assert first.host.get_base64() in job.known_hosts.read_text()
    job.forget()
    assert [path.name for path in job.root.iterdir()] == []


def test_two_commands_make_the_same_keys(job: JobDir) -> None:
    found: list[Keys] = []
    threads = [threading.Thread(target=lambda: found.append(keys_of(job))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert [one.host for one in found] == [found[0].host] * 4


def test_standard_input_and_output_are_a_socket() -> None:
    (reads, typed), (printed, writes) = os.pipe(), os.pipe()
    wire = Stdio(reads, writes)
    wire.settimeout(0.0)
    with pytest.raises(TimeoutError):
        wire.recv(10)
    os.write(typed, b"hello")
    assert wire.recv(3) + wire.recv(10) == b"hello"
    assert (wire.send(b"answer"), os.read(printed, 10)) == (6, b"answer")
    os.close(typed)
    assert wire.recv(10) == b""
    wire.close()
    assert os.read(printed, 10) == b""  # the client sees it while this process goes on
    with pytest.raises(OSError, match="closed"):
        wire.send(b"more")
    for handle in (reads, printed, writes):
        with contextlib.suppress(OSError):
            os.close(handle)


def test_a_command_that_is_not_there() -> None:
    session = ProcessSession(os.environ, None, "127.0.0.2")
    with pytest.raises(CannotRun) as missing:
        session.start(["/no/such/program"], {}, None)
    assert (missing.value.exit_code, missing.value.message) == (127, "/no/such/program: No such file or directory")
