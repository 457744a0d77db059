"""A jump host lets all hosts behind it be reached, however many these are."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport import connecting, login_turns
from jobctl.jobspec.deploy.transport.login_turns import MAX_LOGINS, turn
from jobctl.jobspec.spec.hosts import Host


def is_free(host: str, port: int = 22) -> bool:
    with turn(host, port, 0.0) as taken:
        return taken


def test_no_more_logins_than_an_sshd_takes_are_made_at_once() -> None:
    assert MAX_LOGINS < 10  # sshd's MaxStartups
    with ExitStack() as logins:
        assert all(logins.enter_context(turn("bastion", 22, 0.0)) for _ in range(MAX_LOGINS))
        assert (is_free("bastion"), is_free("bastion", 2222), is_free("other")) == (False, True, True)
    assert is_free("bastion")


def test_who_waits_does_so_as_long_as_others_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sixty hosts, the last one has its turn after seven others; behind a jump host that says nothing nobody is let in."""
    clock, waits, logins = [0.0], list[float](), login_turns._Logins()

    def acquire(*, timeout: float = 0.0, blocking: bool = True) -> bool:
        waits.append(timeout)
        clock[0] += timeout
        logins.let_in = 6.0
        return len(waits) == 3

    monkeypatch.setattr(login_turns, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(logins, "slots", SimpleNamespace(acquire=acquire))
    assert logins.begin(10.0)
    assert waits == [10.0, 6.0, 0.0]


def test_who_connects_through_a_jump_host_takes_a_turn_there_until_it_is_let_in() -> None:
    seen: list[bool] = []
    transport = SimpleNamespace(open_channel=lambda *to, timeout: seen.append(is_free("edge")))
    jump = SimpleNamespace(host="edge", port=22, transport=transport, open=lambda: seen.append(is_free("edge")))
    with ExitStack() as logins:
        for _ in range(MAX_LOGINS - 1):
            logins.enter_context(turn("edge", 22, 0.0))
        connecting._through(SimpleNamespace(host="h1", port=22, gateway=jump, connect_timeout=10))
    assert seen == [False, True]


@pytest.mark.parametrize(
    ("command", "waits"),
    [
        ("ssh -W %h:%p edge", True),
        ("exec /usr/bin/ssh -q -l %r edge nc %h %p", True),
        ("nc -x proxy %h %p", False),
    ],
)
def test_so_do_those_whose_proxy_command_logs_in_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, waits: bool
) -> None:
    """Also where each host has another port and another user."""
    (tmp_path / "config").write_text(f"ProxyCommand {command}\nConnectTimeout 1")
    seen: list[bool] = []
    hosts = [Host(f"h{number}", f"u{number}", 2200 + number) for number in range(MAX_LOGINS)]
    made = [connecting._prepared(host, SshOptions(tmp_path / "config")) for host in hosts]

    def look() -> None:
        with turn(command, 0, 0.0) as taken:
            seen.append(taken)

    last = made.pop()
    monkeypatch.setattr(last, "open", look)
    monkeypatch.setattr(last, "transport", SimpleNamespace(sock=SimpleNamespace(settimeout=lambda seconds: None)))
    monkeypatch.setattr(connecting, "_prepared", lambda host, options: last)
    with ExitStack() as logins:
        for connection in made:
            logins.enter_context(connecting._turn(connection))
        connecting.connect(hosts[-1], SshOptions())
    assert seen == [not waits]
