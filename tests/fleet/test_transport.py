"""What both transports promise, and what is said of each host that cannot be reached; over real sshd and engines."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.errors import HostError, PortClosed
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport.base import Result, Transport, put
from jobctl.jobspec.deploy.transport.connecting import connect
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.spec.hosts import Host

from .fleet import Fleet
from .host import USER
from .host import Host as FleetHost
from .jobs import eventually
from .machine import IMAGE, sh


def ssh(fleet: Fleet, name: str = "h1", **how: Any) -> Ssh:
    options = SshOptions(how.pop("config", fleet.ssh_config), how.pop("accept_new", False))
    return Ssh(Host(name, **how), options)


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
        with pytest.raises(
            HostError, match="its login has run no command within 1 s; it printed `still here"
        ) as caught:
            transport.run(["true"], timeout=1)
        assert caught.value.code == "silent"


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
    connection.open()
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
    early = eventually(there)
    assert len(early) == 1
    if used:
        transport.run(["true"])
        assert there() == early
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


def config(fleet: Fleet, tmp_path: Path, **changes: str) -> Path:
    """Return an ssh configuration like the fleet's, with other values for some of its keys."""
    lines = []
    for line in fleet.ssh_config.read_text().splitlines():
        key = line.split()[0] if line.split() else ""
        lines.append(f"  {key} {changes[key]}" if key in changes else line)
    more = [f"  {key} {value}" for key, value in changes.items() if key not in fleet.ssh_config.read_text()]
    path = tmp_path / "ssh_config"
    path.write_text("\n".join(["Host *", *more, *lines]) + "\n")
    return path


def refused(transport: Ssh) -> tuple[str, str]:
    with pytest.raises(HostError) as caught:
        transport.run(["true"])
    assert caught.value.hint
    return caught.value.code, caught.value.message


def test_an_unknown_host_key_is_refused_unless_told_otherwise(hosts: Fleet, tmp_path: Path) -> None:
    known = tmp_path / "known"
    path = config(hosts, tmp_path, UserKnownHostsFile=str(known))
    assert refused(ssh(hosts, config=path)) == ("host-key-unknown", "h1: its host key is not known here")
    assert not known.exists()
    accepting = ssh(hosts, config=path, accept_new=True)
    assert accepting.run(["true"]).code == 0
    accepting.close()
    assert known.read_text() == hosts[0].host_key() + "\n"
    knowing = ssh(hosts, config=path)
    assert knowing.run(["true"]).code == 0
    knowing.close()
    known.unlink()
    by_config = ssh(
        hosts, config=config(hosts, tmp_path, UserKnownHostsFile=str(known), StrictHostKeyChecking="accept-new")
    )
    assert by_config.run(["true"]).code == 0
    by_config.close()


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_changed_host_key_is_always_refused(hosts: Fleet, tmp_path: Path, accept_new: bool) -> None:
    known = tmp_path / "known"
    kind, key = hosts[1].host_key().split()[1:]
    known.write_text(f"{hosts[0].address} {kind} {key}\n")
    path = config(hosts, tmp_path, UserKnownHostsFile=str(known), StrictHostKeyChecking="no")
    code, message = refused(ssh(hosts, config=path, accept_new=accept_new))
    assert (code, "its host key has changed" in message) == ("host-key-changed", True)


def test_a_refused_key(hosts: Fleet, tmp_path: Path) -> None:
    import subprocess

    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    path = config(hosts, tmp_path, IdentityFile=str(tmp_path / "other"))
    assert refused(ssh(hosts, config=path)) == ("key-refused", "h1: it refuses the keys that were offered")


@contextlib.contextmanager
def sshd(host: FleetHost, *options: str) -> Iterator[None]:
    """Have a host's sshd run with other options."""
    host.kill_sshd()
    host.sshd_options = options
    host.start_sshd()
    try:
        yield
    finally:
        host.kill_sshd()
        host.sshd_options = ()
        host.start_sshd()


def test_a_host_that_wants_a_password(hosts: Fleet) -> None:
    with sshd(hosts[1], "PubkeyAuthentication no", "PasswordAuthentication yes"):
        code, message = refused(ssh(hosts, "h2"))
    assert (code, message) == ("wants-password", "h2: it lets nobody in by a key, and jobctl uses no passwords")


def test_a_key_that_is_not_there_is_named(hosts: Fleet, tmp_path: Path) -> None:
    code, message = refused(ssh(hosts, identity="/nope"))
    assert (code, message) == ("no-identity", "h1: `identity=/nope`: there is no such file")
    path = config(hosts, tmp_path, IdentityFile=str(tmp_path / "gone"))  # ssh passes over it, and has no other
    assert refused(ssh(hosts, config=path))[0] == "key-refused"


def test_identity_of_the_hosts_file(hosts: Fleet, tmp_path: Path) -> None:
    path = config(hosts, tmp_path, IdentityFile="/no/such/key")
    transport = ssh(hosts, config=path, identity=str(hosts.dir / "key"))
    assert transport.run(["true"]).code == 0
    transport.close()


def test_a_host_that_is_dead(hosts: Fleet, tmp_path: Path) -> None:
    hosts[1].pull_cable()
    try:
        path = config(hosts, tmp_path, ConnectTimeout="1")
        assert refused(ssh(hosts, "h2", config=path))[0] == "unreachable"
    finally:
        hosts[1].plug_cable()


def test_a_host_without_sshd(hosts: Fleet) -> None:
    hosts[1].kill_sshd()
    try:
        assert refused(ssh(hosts, "h2")) == ("connection-refused", "h2: nothing listens at its SSH port")
    finally:
        hosts[1].start_sshd()


def test_a_name_that_nobody_knows(hosts: Fleet) -> None:
    code, message = refused(ssh(hosts, "no-such-host.invalid"))
    assert (code, message) == ("unknown-name", "no-such-host.invalid: its name cannot be resolved")


def test_a_host_that_accepts_and_says_nothing(hosts: Fleet, tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as mute:
        path = config(hosts, tmp_path, HostName="127.0.0.1", Port=str(mute.getsockname()[1]), ConnectTimeout="1")
        begin = time.monotonic()
        assert refused(ssh(hosts, config=path)) == ("unreachable", "h1: it accepts connections, and then says nothing")
        assert time.monotonic() - begin < 60


def test_a_cable_that_is_pulled_during_a_command(hosts: Fleet) -> None:
    transport = ssh(hosts, "h2")
    transport.run(["true"])
    hosts[1].pull_cable()
    try:
        with pytest.raises(HostError) as caught:
            transport.run(["true"], timeout=1)
        assert caught.value.code in ("silent", "lost", "unreachable")
    finally:
        hosts[1].plug_cable()
        transport.close()


def test_one_bad_host_does_not_hide_the_others(hosts: Fleet, tmp_path: Path) -> None:
    every = [ssh(hosts, "h1"), ssh(hosts, "h2"), ssh(hosts, "nobody.invalid")]
    outcome = fan_out(every, lambda transport: transport.run(["hostname"]).out)
    assert list(outcome.done.values()) == [b"h1\n", b"h2\n"]
    assert [error.message for error in outcome.failed.values()] == ["nobody.invalid: its name cannot be resolved"]
    for transport in every:
        transport.close()


# The engine.


def test_the_engine_answers_over_ssh(hosts: Fleet) -> None:
    transport = ssh(hosts)
    with Engine(transport).asked() as client:
        container = client.create_container(IMAGE, ["sh", "-c", "echo out; echo err >&2; exit 3"], labels={"a": "b"})
        client.start(container)
        assert client.wait(container)["StatusCode"] == 3
        assert client.logs(container, stderr=False) == b"out\n"
        assert [c["Id"] for c in client.containers(all=True, filters={"label": "a=b"})] == [container["Id"]]
        client.remove_container(container)
    transport.close()


def noted(transport: Ssh, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list into which comes what of `transport` is opened."""
    opened: list[object] = []
    for name in ("dial", "open_socket"):
        how = getattr(transport, name)
        monkeypatch.setattr(transport, name, lambda what, how=how: opened.append(what) or how(what))
    return opened


def use(engine: Engine) -> None:
    with engine.asked() as client:
        container = client.create_container(IMAGE, ["true"])
        client.start(container)
        client.wait(container)
        client.inspect_container(container)
        client.remove_container(container)
        client.info()


def test_all_requests_share_one_connection(hosts: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = ssh(hosts)
    opened = noted(transport, monkeypatch)
    use(Engine(transport))
    assert opened == [str(hosts[0].socket)]
    transport.close()


def test_an_engine_whose_socket_sshd_does_not_lead_to(hosts: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then `docker` does; each session counts, of which sshd gives ten."""
    with sshd(hosts[1], "AllowStreamLocalForwarding no"):
        transport = ssh(hosts, "h2")
        opened = noted(transport, monkeypatch)
        engine = Engine(transport)
        use(engine)
        use(engine)
        assert opened == [str(hosts[1].socket), ["docker", "system", "dial-stdio"]]
        transport.close()


def test_what_the_engine_refuses_is_told_in_its_words(hosts: Fleet) -> None:
    transport = ssh(hosts)
    with pytest.raises(HostError) as caught, Engine(transport).asked() as client:
        client.create_container("no/such/image:here", ["true"])
    assert (caught.value.code, caught.value.message) == (
        "engine-refused",
        "h1: its engine refuses: No such image: no/such/image:here",
    )
    with pytest.raises(HostError) as caught, Engine(transport).asked(lambda words: HostError("h1", "mine", words)) as c:
        c.create_container("no/such/image:here", ["true"])
    assert caught.value.code == "mine"
    transport.close()


def test_events_arrive_at_once(hosts: Fleet) -> None:
    transport = ssh(hosts)
    with Engine(transport).asked() as client, Engine(transport).asked() as watcher, ThreadPoolExecutor(1) as pool:
        stream = watcher.events(decode=True, filters={"event": "die"})
        first = pool.submit(next, stream)
        container = client.create_container(IMAGE, ["sleep", "600"])
        client.start(container)
        client.kill(container)
        assert first.result(60)["id"] == container["Id"]  # while the stream of events goes on
        client.remove_container(container)
    transport.close()


def no_engine(transport: Transport, setting: str | None = None) -> tuple[str, str]:
    with pytest.raises(HostError) as caught:
        HostJob(Host("h1", docker=setting), transport, "job", "ssh").containers.seen()
    assert caught.value.hint
    transport.close()
    return caught.value.code, caught.value.message


def test_an_engine_that_does_not_run(hosts: Fleet) -> None:
    hosts[0].kill_engine()
    try:
        assert no_engine(ssh(hosts)) == ("docker-down", "h1: its Docker Engine does not run")
    finally:
        hosts[0].start_engine()
        hosts[0].wait_for_engine()


def test_a_host_without_docker(hosts: Fleet) -> None:
    command = hosts[0].dir / "bin" / "docker"
    command.unlink()
    command.write_text("#!/bin/sh\necho docker: not found >&2\nexit 127\n")
    command.chmod(0o755)
    try:
        assert no_engine(ssh(hosts)) == ("docker-missing", "h1: there is no `docker` on its PATH")
    finally:
        hosts[0].install_docker()


def test_a_user_who_may_not_talk_to_the_engine(hosts: Fleet) -> None:
    allowed = ssh(hosts, user=USER)
    with Engine(allowed).asked() as client:
        assert client.ping()
    allowed.close()
    hosts[0].socket.chmod(0o600)
    try:
        assert no_engine(ssh(hosts, user=USER))[0] == "docker-no-permission"
    finally:
        hosts[0].socket.chmod(0o660)


def test_the_engine_of_this_machine(hosts: Fleet) -> None:
    url = f"unix://{hosts[0].socket}"
    with Engine(LocalTransport(), url).asked() as client:
        assert client.ping()
    assert no_engine(LocalTransport(), "unix:///no/such/socket")[0] == "docker-down"
