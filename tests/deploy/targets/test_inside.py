"""Commands in containers of hosts that this machine plays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.targets import inside
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.plan.types import Plan
from tests.deploy.apply.test_executor import TWO
from tests.tools.interruptions import interrupts, loses_the_host, nobody_reads, terminates


class Host:
    """A host whose engine has container `c0`; `during` is what happens while a command runs in it."""

    docker = ("docker",)

    def __init__(self, during: Callable[[], int]) -> None:
        self.during, self.transport = during, self
        self.entered: list[str] = []
        self.asked: list[list[str]] = []

    def interact(self, argv: Sequence[str]) -> int:
        self.entered = list(argv)
        return self.during()

    def run(self, argv: Sequence[str], **how: object) -> Result:
        self.asked.append(list(argv))
        return Result(0, b"", b"")


def enter(monkeypatch: pytest.MonkeyPatch, during: Callable[[], int], plan: Plan | None = TWO) -> Host:
    """Enter node 0, whatever that ends with."""
    host = Host(during)
    monkeypatch.setattr(inside, "_running", lambda fleet, node: (host, SimpleNamespace(id="c0")))
    fleet: Any = SimpleNamespace(plan=plan)
    with contextlib.suppress(KeyboardInterrupt, SystemExit, OSError, HostError):
        assert inside.enter(fleet, 0, ["sleep", "9"]) == 7
    return host


@pytest.mark.parametrize("during", [interrupts, terminates, nobody_reads])
def test_a_command_ends_with_the_jobctl_that_started_it(
    during: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine lets it run on: `exec -- yes | head -1` would take a core from the ranks until `down`."""
    host = enter(monkeypatch, during)
    mark = host.entered[host.entered.index("-e") + 1]
    assert mark.startswith("JOBCTL_SESSION=")
    start = ["docker", "exec", "c0", TWO.nodes[0].container.python, "-c"]
    assert [(argv[:-3], argv[-2:]) for argv in host.asked] == [(start, [mark, "group"])]


def test_a_command_ends_where_a_signal_has_ended_the_program_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine: `exec -- yes | head -1` ends `docker exec` with SIGPIPE, and no exception tells."""
    host = Host(lambda: 141)
    monkeypatch.setattr(inside, "_running", lambda fleet, node: (host, SimpleNamespace(id="c0")))
    fleet: Any = SimpleNamespace(plan=TWO)
    assert inside.enter(fleet, 0, ["yes"]) == 141
    assert [argv[-1] for argv in host.asked] == ["group"]


@pytest.mark.parametrize("during", [lambda: 7, loses_the_host])
def test_a_command_that_has_ended_or_cannot_be_reached_is_left_alone(
    during: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert enter(monkeypatch, during).asked == []
