"""Ports for servers of tests: nobody gets one twice, whatever else chooses ports on this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jobctl.jobspec.plan.generation import FIRST_PORT

from . import ports


def test_a_port_that_was_given_is_given_to_nobody_else() -> None:
    """Its server may not listen yet. A second file is to the lock what another process is."""
    given = ports.free_ports(3)
    for port in given:
        with socket.socket() as server:
            server.bind(("0.0.0.0", port))
        with pytest.raises(BlockingIOError):
            ports._claim(port)


def test_jobs_and_whoever_connects_choose_other_ports() -> None:
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert min(FIRST_PORT, ephemeral) >= ports.LAST
