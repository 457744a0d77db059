"""What is said of a host that cannot be reached."""

from __future__ import annotations

import errno
import os
import socket
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport import connecting
from jobctl.jobspec.deploy.transport.dialing import dial
from jobctl.jobspec.deploy.transport.ssh_problems import explain, login_ended
from jobctl.jobspec.spec.hosts import Host


def system(number: int) -> OSError:
    return OSError(number, os.strerror(number))


KEY = paramiko.ECDSAKey.generate()


def tried(*numbers: int) -> Exception:
    addresses = {(f"10.0.0.{n}", 22): system(number) for n, number in enumerate(numbers, 1)}
    return paramiko.ssh_exception.NoValidConnectionsError(addresses)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (tried(errno.ECONNREFUSED), "connection-refused"),
        (tried(errno.EHOSTUNREACH), "no-route"),
        (tried(errno.EHOSTUNREACH, errno.ECONNREFUSED), "connection-refused"),  # that one answered
        (system(errno.ENETUNREACH), "no-route"),
        (system(errno.EHOSTUNREACH), "no-route"),
        (system(errno.ETIMEDOUT), "unreachable"),
        (paramiko.BadAuthenticationType("no", ["password"]), "wants-password"),
        (paramiko.AuthenticationException("no"), "key-refused"),
        (paramiko.AuthenticationException("Authentication timeout."), "unreachable"),  # it may take any of them
        (PermissionError(errno.EACCES, "Permission denied", "/root/key"), "no-identity"),
        (paramiko.PasswordRequiredException("no"), "key-locked"),
        (system(errno.EMFILE), "too-many-files"),
        (OSError(errno.EMFILE, "Too many open files", "/root/.ssh/known_hosts"), "too-many-files"),
        (EOFError(), "lost"),
        (paramiko.SSHException("Unable to open channel."), "lost"),
    ],
)
def test_each_cause_has_its_own_code(error: Exception, code: str) -> None:
    found = explain(Host("h1"), error, "run true")
    assert found is not None
    assert (found.code, bool(found.hint)) == (code, True)


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (tried(errno.ECONNREFUSED), "nothing listens at its SSH port 8", "is sshd running there? try `ssh -p 8 ml@h1`"),
        (
            paramiko.SSHException("h1 not found in known_hosts"),
            "its host key is not known here",
            "`ssh -p 8 ml@h1`, or",
        ),
        (paramiko.BadAuthenticationType("no", ["password"]), "it lets nobody in by", "`ssh-copy-id -p 8 ml@h1`"),
        (paramiko.BadHostKeyException("h1", KEY, KEY), "its host key has changed", "`ssh-keygen -R '[h1]:8'`"),
    ],
)
def test_what_to_type_goes_to_the_port_of_the_hosts_file(error: Exception, message: str, hint: str) -> None:
    found = explain(Host("h1", user="ml", port=8), error, "run true")
    assert found is not None
    assert (message in found.message, hint in (found.hint or "")) == (True, True), (found.message, found.hint)


@pytest.mark.parametrize("name", ["gpu01..cluster", f"{'gpu' * 22}.cluster"])
def test_a_name_that_can_be_none_cannot_be_resolved(name: str) -> None:
    """Python does not even ask for it."""
    with pytest.raises(socket.gaierror) as caught:
        dial(name, 22, "any", 1.0)
    found = explain(Host(name), caught.value, "run true")
    assert found is not None
    assert (found.code, found.message) == ("unknown-name", f"{name}: its name cannot be resolved")


def test_a_connection_that_ended_is_told_in_the_same_words_to_all_that_use_it() -> None:
    found = [
        explain(Host("h1"), error, "run sh") for error in (EOFError(), paramiko.SSHException("Unable to open channel."))
    ]
    assert [str(error) for error in found] == ["h1: the connection was lost while it was to run sh"] * 2


class Hop:
    """A connection of Fabric's to a jump host, or through one, that may not be made."""

    def __init__(self, name: str, gateway: Hop | None = None, error: Exception | None = None) -> None:
        self.original_host, self.gateway, self.error, self.is_closed = name, gateway, error, False
        self.client = self
        self.transport: Any = None

    def open(self) -> None:
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (paramiko.ChannelException(2, "Connect failed"), "h2: its jump host h1 cannot connect to it: Connect failed"),
        (paramiko.AuthenticationException("no"), "no"),
    ],
)
def test_a_connection_that_is_not_made_leaves_none_to_its_jump_host(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    jump = Hop("h1")
    made = Hop("h2", jump, error)
    monkeypatch.setattr(connecting, "_prepared", lambda host, options: made)
    with pytest.raises(Exception, match=f"^{message}$"):
        connecting.connect(Host("h2"), SshOptions())
    assert (made.is_closed, jump.is_closed) == (True, True)


def test_connections_that_are_not_used_do_not_keep_a_core_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paramiko's own look at each ten times a second: 64 hosts behind a jump host would cost 3 % of a core."""
    hops = [Hop("h1")]
    hops.append(Hop("h2", hops[0]))
    pauses: list[float] = []
    for hop in hops:
        hop.transport = SimpleNamespace(sock=SimpleNamespace(settimeout=pauses.append, shutdown=lambda how: None))
    monkeypatch.setattr(connecting, "_prepared", lambda host, options: hops[1])
    assert connecting.connect(Host("h2"), SshOptions()) is hops[1]
    assert pauses == [connecting.CLOSE_CHECK_INTERVAL] * 2


def test_closing_does_not_wait_for_the_next_look_at_a_connection() -> None:
    told: list[str] = []
    hops = [Hop("h1")]
    hops.append(Hop("h2", hops[0]))
    for hop in hops:
        name = hop.original_host
        hop.transport = SimpleNamespace(
            sock=SimpleNamespace(shutdown=lambda how, name=name: told.append(f"wake {name}"))
        )
        hop.close = lambda name=name: told.append(f"close {name}")  # type: ignore[method-assign]
    connecting.close(hops[1])  # type: ignore[arg-type]
    assert list(dict.fromkeys(told)) == ["wake h2", "close h2", "wake h1", "close h1"]


def test_what_a_login_printed_is_told_in_a_line_that_a_terminal_can_show() -> None:
    assert login_ended("h1", 0, b"").cause == "its login ends before it runs a command, with exit code 0"
    noise = login_ended("h1", 1, b"\x1b[2Jhello\r\n  there\xff" + 1000 * b"x").cause
    assert "it printed `?[2Jhello there\N{REPLACEMENT CHARACTER}xxx" in noise
    assert len(noise) < 300
