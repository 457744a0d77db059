"""What a host says of its lock, and what becomes of that if the connection is lost in the midst of it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import hold_on
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host


class Breaks(LocalTransport):
    """A host whose connection is lost after some words."""

    said = b""

    def dial(self, argv: Any) -> socket.socket:
        ours, its = socket.socketpair()
        with its:
            its.sendall(self.said)
        return ours


def refusal(tmp_path: Path, said: bytes) -> HostError:
    host = Breaks("h1")
    host.said = said
    host_job = HostJob(Host("h1", dir=str(tmp_path)), host, "job", "ssh")
    with pytest.raises(HostError) as caught, hold_on([host_job], "lock", "up"):
        pass
    return caught.value


@pytest.mark.parametrize("said", [b"", b"/w\n", b"/w\n/w\nhel"])
def test_a_connection_that_is_lost_is_told_as_that(tmp_path: Path, said: bytes) -> None:
    error = refusal(tmp_path, said)
    assert error.message == "h1: cannot lock the job: the connection was lost, or its shell has ended"
    assert (error.code, bool(error.hint)) == ("silent", True)


def test_a_reason_of_several_lines_is_one(tmp_path: Path) -> None:
    error = refusal(tmp_path, b"/w\n/w\nfailed mkdir: Permission denied\nand more\n")
    assert error.message == "h1: cannot lock /w/lock: mkdir: Permission denied"
