"""The user's SSH configuration counts as it does for `ssh`, also where Paramiko and Fabric read it in another way."""

from __future__ import annotations

import errno
import io
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.targets.local.session import ProcessSession
from jobctl.jobspec.deploy.transport import connecting, ssh_config
from jobctl.jobspec.deploy.transport.ssh_config import read_config
from jobctl.jobspec.deploy.transport.streamlocal import wire
from jobctl.jobspec.spec.hosts import Host
from tests.tools.loopback import Loopback, loopback


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Loopback]:
    with loopback(tmp_path) as made:
        yield made


def way(home: Path, *lines: str, to: str = "gpu01") -> list[str]:
    """Return the hosts that a connection passes, from here on."""
    (home / "config").write_text("\n".join(lines))
    hops = connecting._hops(connecting._prepared(Host(to), SshOptions()))
    return [f"{hop.user}@{hop.host}:{hop.port}" for hop in hops][::-1]


def said(home: Path, host: str, **files: str) -> dict[str, Any]:
    for name, text in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text)
    return dict(read_config(None).lookup(host))


def test_several_jump_hosts_are_passed_in_the_order_in_which_they_are_named(home: Path) -> None:
    jumps = ["Host gpu*", "User ml", "ProxyJump edge, ann@inner:2222", "Host edge", "HostName 10.0.0.1", "User bob"]
    assert way(home, *jumps) == ["bob@10.0.0.1:22", "ann@inner:2222", "ml@gpu01:22"]
    jumps = ["Host gpu*", "User ml", "ProxyJump ssh://ann@[fd00::1]:2222", "Host fd00::1", "ProxyJump bob@edge"]
    assert way(home, *jumps) == ["bob@edge:22", "ann@fd00::1:2222", "ml@gpu01:22"]


@pytest.mark.parametrize("exempt", [["ProxyJump none"], ["ProxyCommand none"], []])
def test_a_jump_host_is_not_reached_through_itself(home: Path, exempt: list[str]) -> None:
    lines = ["Host bastion", "HostName 10.9.9.9", *exempt, "Host *", "User ml", "ProxyJump bastion"]
    assert way(home, *lines) == ["ml@10.9.9.9:22", "ml@gpu01:22"]
    assert way(home, *lines, to="bastion") == ["ml@10.9.9.9:22"]


def test_of_a_jump_host_and_a_command_the_first_counts(home: Path) -> None:
    first, last = "ProxyJump edge", "ProxyCommand nc %h %p"
    for lines, gateway in (((first, last), None), ((last, first), "nc gpu01 22")):
        way(home, "Host gpu01", *lines)
        made = connecting._prepared(Host("gpu01"), SshOptions())
        assert made.gateway == gateway or (gateway is None and made.gateway.host == "edge")


def test_the_user_and_port_of_a_line_count_before_the_configuration(home: Path) -> None:
    """As `ssh -l ml -p 2222` has them, and as a jump host has those that `ProxyJump` names."""
    block = ["IdentityFile ~/.ssh/%r_key", "Match user ml", "ProxyCommand ssh -W %h:%p -l %r edge", "ConnectTimeout 90"]
    (home / "config").write_text("\n".join(["Host gpu02", "User ann", "Host *", "User all", "Port 7", *block]))
    made = [
        connecting._prepared(Host(name, user, port), SshOptions())
        for name, user, port in (
            ("gpu01", "ml", 2222),
            ("gpu01", None, 2222),
            ("gpu02", "ml", None),
            ("gpu02", None, None),
        )
    ]
    assert [one.gateway for one in made] == ["ssh -W gpu01:2222 -l ml edge", None, "ssh -W gpu02:7 -l ml edge", None]
    assert [one.connect_timeout for one in made] == [90, 10, 90, 10]
    assert [(one.user, one.port) for one in made] == [("ml", 2222), ("all", 2222), ("ml", 7), ("ann", 7)]
    assert [one.ssh_config["identityfile"] for one in made] == [
        [f"{home}/{key}_key"] for key in ("ml", "all", "ml", "ann")
    ]
    jumps = ["Host gpu01", "ProxyJump ann@edge:2200", "Host edge", "ProxyCommand ssh -W %h:%p -l %r outer"]
    (home / "config").write_text("\n".join(jumps))
    assert connecting._prepared(Host("gpu01"), SshOptions()).gateway.gateway == "ssh -W edge:2200 -l ann outer"


def test_included_files_count_where_they_are_included(home: Path) -> None:
    config = "Include conf.d/* ~/.ssh/none\nUser everybody\nHost gpu01\n  Port 2201  # not 22\n"
    lab = "Host gpu*\n  HostName %h.lab\nHost gpu01\n  User ann\n"
    found = said(home, "gpu01", config=config, other="Port 1", **{"conf.d/lab": lab})
    assert (found["hostname"], found["user"], found["port"]) == ("gpu01.lab", "ann", "2201")
    assert said(home, "gpu02")["user"] == "everybody"


def test_this_machines_full_name_is_asked_for_only_where_that_matters(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS may need long for it."""
    asked: list[str] = []
    monkeypatch.setattr(socket, "getfqdn", lambda *name: asked.append("name") or "me.lab")
    assert said(home, "gpu01", config="IdentityFile ~/.ssh/%h-%d")["identityfile"] == [f"{home}/gpu01-{home.parent}"]
    assert asked == []
    assert said(home, "gpu01", config="IdentityFile ~/.ssh/%l")["identityfile"] == [f"{home}/me.lab"]


def test_blocks_of_a_file_that_a_block_includes_are_for_hosts_of_both(home: Path) -> None:
    config = "Host gpu* !gpu09\n  Include one\n  Port 7\nHost *\n  User all\n"
    one = "User gpus\nHost *1 login\n  ProxyJump edge\nMatch host gpu02\n  Include two\nMatch all\n  Compression yes\n"
    found = {
        name: said(home, name, config=config, one=one, two="HostName second\n") for name in ("gpu01", "gpu02", "login")
    }
    assert [found[name].get("proxyjump") for name in found] == ["edge", None, None]
    assert [found[name]["hostname"] for name in found] == ["gpu01", "second", "login"]
    assert [found[name].get("port") for name in found] == ["7", "7", None]
    assert [found[name]["user"] for name in found] == ["gpus", "gpus", "all"]
    assert [found[name].get("compression") for name in found] == ["yes", "yes", None]
    assert "port" not in said(home, "gpu09")


@pytest.mark.parametrize(
    ("block", "holds"),
    [
        ("Match Host gpu01", True),
        ("Match Host lab*", False),
        ("Match !Host lab*", True),
        ("Match host all", False),
        ("Match tagged lab", False),
        ("Match localnetwork 10.0.0.0/8 host gpu01", False),
        ("Match ORIGINALHOST gpu*,lab final", True),
        ("Host lab,gpu01", False),
        ("Host lab gpu01", True),
    ],
)
def test_a_block_is_for_the_hosts_that_openssh_takes_it_for(home: Path, block: str, holds: bool) -> None:
    """A condition that nobody here knows never holds: the block may say that unknown keys are accepted."""
    files = {"config": f"{block}\n  Include extra\n  Port 7\n", "extra": "User ann\n"}
    assert (said(home, "gpu01", **files).get("port") == "7") is holds


def test_the_command_of_a_condition_does_not_run_for_each_block(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with many blocks may be included in one that has such a condition."""
    monkeypatch.setattr("sys.stdin", io.StringIO())  # which Paramiko reads for the command
    config = f'Match exec "echo >> {home}/ran"\n  Include extra\n'
    said(home, "gpu01", config=config, extra="".join(f"Host lab{n}\n  Port {n}\n" for n in range(20)))
    assert len((home / "ran").read_text().splitlines()) <= 6


@pytest.mark.parametrize("known", [True, False])
def test_files_of_fedora_can_be_read(home: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """They have one block, which only newer versions of Paramiko know at all: for all hosts, after all others."""
    monkeypatch.setattr(ssh_config, "_knows_final", lambda: known)
    block = "Match final all\n\tInclude policies\n\tPort 7\n\tForwardX11Trusted yes\n"
    found = said(
        home, "gpu01", config="Include redhat\nHost *\n  Port 8", redhat=block, policies="Ciphers aes128-ctr\n"
    )
    assert (found["forwardx11trusted"], found["ciphers"]) == ("yes", "aes128-ctr")
    assert found["port"] == ("8" if known else "7")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("Host", "Unparsable line Host"),
        ("Include config", "more than 16 files include each other"),
        ("Match exec \"it's", "No closing quotation"),
        ("Host h1\nPort ssh", "invalid literal"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_no_bug(home: Path, config: str, why: str) -> None:
    (home / "config").write_text(config)
    with pytest.raises(HostError, match=why) as caught:
        connecting.connect(Host("h1"), SshOptions())
    assert (caught.value.code, bool(caught.value.hint)) == ("bad-ssh-config", True)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1m30s", 90), ("none", 10), ("0", 10)])
def test_how_long_a_host_may_take_is_said_in_openssh_s_words(home: Path, text: str, seconds: int) -> None:
    (home / "config").write_text(f"ConnectTimeout {text}\nForwardAgent $SSH_AUTH_SOCK\n")
    assert connecting._prepared(Host("h1"), SshOptions()).connect_timeout == seconds


def test_a_host_behind_a_jump_host_is_not_waited_for_any_longer(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def dial(session: ProcessSession, port: int) -> socket.socket:
        over.wait()
        raise DeployError("it is off")

    monkeypatch.setattr(ProcessSession, "dial", dial)
    server.known_hosts.write_text(server.line())
    jump = [f"Host h9\nHostName 127.0.0.1\nPort {server.port}\nUser anybody", f"IdentityFile {server.keys.user_file}"]
    jump += ["IdentitiesOnly yes", f"UserKnownHostsFile {server.known_hosts}"]
    try:
        with server.client("ProxyJump h9", "ConnectTimeout 1", *jump) as there, pytest.raises(HostError) as caught:
            there.run(["true"])
    finally:
        over.set()
    assert caught.value.code == "unreachable"
    assert caught.value.message == "h1: its jump host h9 cannot connect to it: it does not answer within 1 s"


@pytest.mark.parametrize(
    "error", [TimeoutError("timed out"), OSError(errno.ENETUNREACH, "no way"), ConnectionRefusedError()]
)
def test_the_next_address_of_a_host_is_tried_where_one_leads_nowhere(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    connect, dialled = socket.socket.connect, list[str]()

    def lead_nowhere(one: socket.socket, address: Any) -> None:
        dialled.append(address[0])
        if address[0] == "127.0.0.9":
            raise error
        connect(one, address)

    places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, server.port)) for name in ("127.0.0.9", "127.0.0.1")]
    monkeypatch.setattr(socket.socket, "connect", lead_nowhere)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked: places)
    with server.client(accept_new=True) as there:
        assert there.run(["echo", "one"]).out == b"one\n"
    assert dialled == ["127.0.0.9", "127.0.0.1"]


def test_addresses_are_of_the_family_that_is_named(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def refuse(host: str, port: object, family: int, kind: int, *more: int) -> NoReturn:
        asked.extend([family] if kind == socket.SOCK_STREAM else [])  # Paramiko asks what this machine is called
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in ("inet", "inet6", "any"):
        with server.client(f"AddressFamily {name}") as there, pytest.raises(HostError):
            there.run(["true"])
    assert asked == [socket.AF_INET, socket.AF_INET6, socket.AF_UNSPEC]


def test_a_host_is_known_by_its_alias(server: Loopback) -> None:
    server.config = "HostKeyAlias compute.1"
    with server.client(accept_new=True) as there:
        assert there.run(["echo", "one"]).out == b"one\n"
    assert server.known_hosts.read_text() == server.line("compute.1")
    with server.client() as there:
        assert there.run(["echo", "one"]).out == b"one\n"


def test_the_file_of_the_hosts_that_all_users_know_may_be_another(server: Loopback) -> None:
    (server.folder / "all").write_text(server.line())
    with server.client(f"GlobalKnownHostsFile /none {server.folder}/all") as there:
        assert there.run(["echo", "one"]).out == b"one\n"
    assert not server.known_hosts.exists()


@pytest.mark.parametrize("hashed", [False, True])
def test_hosts_are_known_in_small_letters(server: Loopback, hashed: bool) -> None:
    import paramiko

    name = f"[localhost]:{server.port}"
    server.config = "HostName LocalHost"
    server.known_hosts.write_text(server.line(paramiko.HostKeys.hash_host(name) if hashed else name))
    with server.client() as there:
        assert there.run(["echo", "one"]).out == b"one\n"


def test_a_host_is_asked_for_a_key_that_is_known() -> None:
    """One with several keys would show another one, which looks like a changed key."""
    for known, first in (("ssh-rsa", "rsa-sha2-512"), ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256")):
        here, there = socket.socketpair()
        with here, there:
            made = wire(here, known=[known])
            assert made.get_security_options().key_types[0] == first
            made.close()
