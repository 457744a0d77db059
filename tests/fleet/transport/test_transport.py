"""What both transports promise, to commands, files and ports of a host; over a real sshd."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.model.errors import HostError, PortClosed
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport.base import Result, Transport, put
from jobctl.jobspec.deploy.transport.connecting import connect
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.spec.hosts import Host
from tests.fleet.fleet import Fleet
from tests.fleet.machine import sh
from tests.fleet.ssh_there import config, refused, ssh, sshd
from tests.tools.waiting import eventually


@pytest.fixture(params=["here", "ssh"])
def transport(request: pytest.FixtureRequest, hosts: Fleet) -> Iterator[Transport]:
    made: Transport = LocalTransport() if request.param == "here" else ssh(hosts)
    yield made
    made.close()


# The contract.

HOSTILE = [
    "",
    " ",
    "$HOME `id` $(id)",
    'it\'s "quoted"',
    "two\nlines",
    "; exit 3",
    "-n",
    "{{ x }}",
    "ünï 数据",
    "*",
    "~",
    "\\",
]


def test_arguments_arrive_as_they_are(transport: Transport) -> None:
    result = transport.run(["printf", "%s\\0", *HOSTILE])
    assert result.out.decode().split("\0")[:-1] == HOSTILE


def test_output_and_exit_code(transport: Transport) -> None:
    result = transport.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (result.code, result.out, result.err, result.words) == (7, b"out\n", b"err\n", "err")


def test_input_and_output_of_any_size_and_bytes(transport: Transport) -> None:
    data = os.urandom(5_000_000)
    assert transport.run(["cat"], data).out == data


def test_much_output_on_both_streams(transport: Transport) -> None:
    result = transport.run(["sh", "-c", "head -c 4000000 /dev/zero; head -c 4000000 /dev/zero >&2"])
    assert (result.code, len(result.out), len(result.err)) == (0, 4_000_000, 4_000_000)


def test_a_command_that_does_not_read_its_input(transport: Transport) -> None:
    assert transport.run(["true"], b"x" * 10_000_000).code == 0


def test_a_program_that_is_not_there(transport: Transport) -> None:
    assert transport.run(["no-such-program"]).code == 127


def test_silence_has_an_end(transport: Transport) -> None:
    begin = time.monotonic()
    with pytest.raises(HostError) as caught:
        transport.run(["sleep", "600"], timeout=0.5)
    assert (caught.value.code, time.monotonic() - begin < 60) == ("silent", True)
    assert transport.run(["true"]).code == 0


def test_commands_side_by_side(transport: Transport) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: transport.run(["sh", "-c", f"sleep 0.2; echo {n}"]).out, range(8)))
    assert results == [b"%d\n" % n for n in range(8)]


def test_a_slow_bashrc_costs_once(hosts: Fleet) -> None:
    """bash reads it for commands of SSH, too; ten commands one after the other need one shell."""
    bashrc, ran = hosts[0].home / ".bashrc", hosts[0].home / "ran"
    bashrc.write_text("echo ran >> ~/ran\n")
    transport = ssh(hosts)
    try:
        assert [transport.run(["sh", "-c", f"exit {n}"]).code for n in range(10)] == list(range(10))
        assert ran.read_text() == "ran\n"
    finally:
        transport.close()
        bashrc.unlink()
        ran.unlink()


@contextlib.contextmanager
def bashrc(fleet: Fleet, text: str) -> Iterator[Ssh]:
    """Give the first host a `.bashrc`, and yield a transport to it."""
    path = fleet[0].home / ".bashrc"
    path.write_text(text)
    transport = ssh(fleet)
    try:
        yield transport
    finally:
        transport.close()
        path.unlink()


def test_what_a_login_prints_is_not_taken_for_a_commands_words(hosts: Fleet) -> None:
    with bashrc(hosts, "echo Welcome; printf 'no end of line'; echo 'Have fun' >&2; sleep 0.1\n") as transport:
        transport.preconnect()
        assert transport.run(["sh", "-c", "echo out; echo err >&2"]) == Result(0, b"out\n", b"err\n")
        assert transport.run(["sh", "-c", "cat; echo err >&2; exit 3"], b"in") == Result(3, b"in", b"err\n")
        channel = transport.dial(["echo", "dialled"])
        assert (channel.recv(100), channel.recv(100)) == (b"dialled\n", b"")
        channel.close()


def test_what_a_login_prints_stays_out_of_pipes(hosts: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
    with bashrc(hosts, "echo Welcome; echo 'Have fun' >&2\n") as transport:
        assert transport.interact(["sh", "-c", "echo out; echo err >&2; exit 3"]) == 3
    assert tuple(capfd.readouterr()) == ("out\n", "err\n")


def test_a_forced_command_may_print_around_what_it_runs(hosts: Fleet) -> None:
    forced = 'ForceCommand echo before; eval "$SSH_ORIGINAL_COMMAND"; echo after; exit 0'
    with sshd(hosts[1], forced):
        transport = ssh(hosts, "h2")
        assert transport.run(["sh", "-c", "echo out; exit 3"]) == Result(3, b"out\n", b"")
        assert transport.run(["sh", "-c", "cat; exit 3"], b"in") == Result(3, b"in", b"")
        transport.close()


@pytest.mark.parametrize("early", [False, True])
def test_a_login_that_runs_no_command(hosts: Fleet, early: bool) -> None:
    with bashrc(hosts, "echo 'Maintenance tonight'; exit 0\n") as transport:
        if early:
            transport.preconnect()
        code, message = refused(transport)
        assert (code, "exit code 0; it printed `Maintenance tonight`" in message) == ("login-ends", True)
        with pytest.raises(HostError, match="its login ends before it runs a command"):
            transport.dial(["true"])
        (hosts[0].home / ".bashrc").write_text("")
        assert transport.run(["true"]).code == 0


def test_a_login_that_never_ends(hosts: Fleet) -> None:
    with bashrc(hosts, "while :; do echo still here; sleep 0.05; done\n") as transport:
        said = ""
        for seconds in (1, 10, 60):  # on a busy machine it may not have come to print
            with pytest.raises(HostError, match=f"its login has run no command within {seconds} s") as caught:
                transport.run(["true"], timeout=seconds)
            assert caught.value.code == "silent"
            said = caught.value.message
            if "it printed" in said:
                break
        assert "; it printed `still here" in said


def test_files_are_put_whole(transport: Transport, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = f"/tmp/jobctl-test-{os.getpid()}/a dir/it's $x"
    put(transport, path, b"first", 0o644)
    put(transport, path, b"second\0", 0o600)
    assert transport.run(["cat", path]).out == b"second\0"
    assert transport.run(["stat", "-c", "%a", path]).out == b"600\n"
    assert transport.run(["ls", "-A", os.path.dirname(path)]).out == b"it's $x\n"
    transport.run(["rm", "-r", os.path.dirname(os.path.dirname(path))])


def test_a_file_that_cannot_be_put(transport: Transport) -> None:
    with pytest.raises(HostError, match="cannot write /proc/nowhere/file: "):
        put(transport, "/proc/nowhere/file", b"")


def test_a_socket_to_a_command(transport: Transport) -> None:
    channel = transport.dial(["cat"])
    channel.settimeout(60)
    channel.sendall(b"ping")
    assert channel.recv(4) == b"ping"
    channel.close()


def test_a_unix_socket_there(transport: Transport) -> None:
    with tempfile.TemporaryDirectory(prefix="jobctl-") as folder, socket.socket(socket.AF_UNIX) as server:
        path = f"{folder}/it's a socket"
        server.bind(path)
        assert transport.open_socket(path) is None  # nobody listens
        server.listen()
        channel = transport.open_socket(path)
        channel.settimeout(60)
        channel.sendall(b"ping")
        inside, _ = server.accept()
        with inside:
            assert inside.recv(4) == b"ping"
            inside.sendall(b"pong")
        assert (channel.recv(4), channel.recv(4)) == (b"pong", b"")
        channel.close()
    assert transport.open_socket(path) is None
    assert transport.run(["true"]).code == 0


def test_a_host_that_is_reached_out_for_early_is_there(transport: Transport) -> None:
    transport.preconnect()
    assert transport.run(["true"]).code == 0


# SSH.


def test_what_there_is_to_say_is_sent_at_once(hosts: Fleet) -> None:
    connection = connect(Host("h1"), SshOptions(hosts.ssh_config))
    with contextlib.closing(connection):
        assert connection.transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_what_went_wrong_with_an_early_connection_is_said_at_the_first_use(hosts: Fleet, tmp_path: Path) -> None:
    transport = ssh(hosts, config=config(hosts, tmp_path, UserKnownHostsFile=str(tmp_path / "known")))
    transport.preconnect()
    assert refused(transport) == ("host-key-unknown", "h1: its host key is not known here")


@pytest.mark.parametrize("used", [True, False])
def test_what_was_begun_early_is_used_once_and_closed(hosts: Fleet, used: bool) -> None:
    def there() -> set[str]:
        own = sh("ip", "netns", "pids", hosts[0].namespace).split()
        shells = hosts[0].run("pgrep", "-x", "sh", check=False).split()
        return set(shells) & set(own) - before  # others' tests may have some, too

    before: set[str] = set()
    before = there()
    transport = ssh(hosts)
    transport.preconnect()
    if used:  # at once: it is waited for, and no second shell begun
        transport.run(["true"])
    # A shell is two for a moment, before the command that it has begun is another program.
    early = eventually(lambda: len(found := there()) == 1 and found)
    if used:
        transport.run(["true"])
        eventually(lambda: there() == early)
    transport.close()
    eventually(lambda: not there())


def test_one_connection_is_kept(hosts: Fleet) -> None:
    transport = ssh(hosts)
    ports = {transport.run(["sh", "-c", "echo $SSH_CONNECTION"]).out for _ in range(3)}
    assert len(ports) == 1
    transport.close()
    assert transport.run(["sh", "-c", "echo $SSH_CONNECTION"]).out not in ports
    transport.close()


def test_what_is_lost_is_connected_anew(hosts: Fleet) -> None:
    transport = ssh(hosts)
    transport.run(["true"])
    hosts[0].kill_sshd()
    hosts[0].start_sshd()
    assert transport.run(["true"]).code == 0
    transport.close()


def test_through_a_jump_host(hosts: Fleet) -> None:
    host = hosts[1]
    host.kill_sshd()
    host.behind = host.hidden
    host.start_sshd()
    hosts.write_ssh_config()
    transport = ssh(hosts, "h2")
    try:
        assert transport.run(["hostname"]).out == b"h2\n"
        with Engine(transport).asked() as client:
            assert client.ping()
    finally:
        transport.close()
        host.kill_sshd()
        host.behind = None
        host.start_sshd()
        hosts.write_ssh_config()


LISTENER = "import socket; a = socket.create_server(('127.0.0.1', 0)); print(a.getsockname()[1], flush=True); \
b, _ = a.accept(); a.close(); b.sendall(b.recv(9)); b.close()"


def test_a_tcp_port(transport: Transport) -> None:
    listening = transport.dial(["python3", "-c", LISTENER])
    listening.settimeout(60)
    port = int(listening.recv(10))
    connection = transport.open_port("127.0.0.1", port)
    connection.settimeout(60)
    connection.sendall(b"ping")
    assert (connection.recv(9), connection.recv(9)) == (b"ping", b"")
    listening.close()
    with pytest.raises(PortClosed, match=f": nothing listens at 127.0.0.1:{port}"):
        transport.open_port("127.0.0.1", port)


def test_an_sshd_that_forwards_no_ports(hosts: Fleet) -> None:
    with sshd(hosts[1], "AllowTcpForwarding no"):
        transport = ssh(hosts, "h2")
        with pytest.raises(HostError) as caught:
            transport.open_port("127.0.0.1", 22)
        transport.close()
    assert (caught.value.code, caught.value.message) == (
        "forwarding-forbidden",
        "h2: its sshd does not forward connections to 127.0.0.1:22",
    )
