"""A command as a process of this machine that has a terminal of its own."""

from __future__ import annotations

import os

import pytest

from jobctl.jobspec.deploy.transport.base import TerminalSize
from jobctl.jobspec.deploy.transport.running import ProcessCommand


def test_a_terminal_is_closed_when_its_command_has_ended() -> None:
    """The server of an editor lives for days, and has a terminal for each window."""
    command = ProcessCommand(["cat"], os.environ, None, TerminalSize("xterm", 80, 24))
    opened = terminals()
    command.resize(90, 20)
    command.send(b"on\n\x04")
    said = b""
    while data := command.output():
        said += data
    assert b"on" in said
    assert command.wait() == 0
    assert len(opened - terminals()) == 1
    command.resize(80, 24)
    command.close()
    with pytest.raises(BrokenPipeError):
        command.send(b"more")


def terminals() -> set[str]:
    """Return the numbers by which this process has the ends of terminals that are its own."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            where = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # that of the list itself
            continue
        if where.endswith("ptmx"):
            found.add(number)
    return found
