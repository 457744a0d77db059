"""What is said of a host that cannot be reached."""

from __future__ import annotations

import errno
import os

import paramiko
import pytest

from jobctl.jobspec.deploy.transport.ssh_problems import explain, login_ended
from jobctl.jobspec.spec.hosts import Host


def system(number: int) -> OSError:
    return OSError(number, os.strerror(number))


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
        (PermissionError(errno.EACCES, "Permission denied", "/root/key"), "no-identity"),
        (paramiko.PasswordRequiredException("no"), "key-locked"),
    ],
)
def test_each_cause_has_its_own_code(error: Exception, code: str) -> None:
    found = explain(Host("h1"), error, "run true")
    assert found is not None
    assert (found.code, bool(found.hint)) == (code, True)


def test_what_a_login_printed_is_told_in_a_line_that_a_terminal_can_show() -> None:
    assert login_ended("h1", 0, b"").cause == "its login ends before it runs a command, with exit code 0"
    noise = login_ended("h1", 1, b"\x1b[2Jhello\r\n  there\xff" + 1000 * b"x").cause
    assert "it printed `?[2Jhello there\N{REPLACEMENT CHARACTER}xxx" in noise
    assert len(noise) < 300
