"""A command of jobctl's that somebody ends while it has the terminal, or has something elsewhere: it ends in order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes import session
from jobctl.jobspec.deploy.slurm import looking
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.targets import inside


@pytest.fixture(autouse=True, params=[signal.SIGTERM, signal.SIGHUP])
def end(request: pytest.FixtureRequest) -> Iterator[Callable[..., int]]:
    """Yield what ends this process, unless the command handles it."""
    number: signal.Signals = request.param
    before = signal.signal(number, lambda received, frame: None)

    def end(*given: object, **more: object) -> int:
        signal.raise_signal(number)
        return 0

    yield end
    signal.signal(number, before)


def test_the_log_of_a_service(end: Callable[..., int]) -> None:
    host = SimpleNamespace(docker=["docker"], transport=SimpleNamespace(interact=end))
    seen = SimpleNamespace(containers=[SimpleNamespace(service="etcd", id="c0")])
    fleet: Any = SimpleNamespace(observe=lambda: None, seen={"h0": seen}, host_jobs={"h0": host})
    with pytest.raises(SystemExit):
        inside.show_log(fleet, "etcd", None, follow=True)


def test_a_command_on_a_machine_of_slurms(end: Callable[..., int]) -> None:
    login: Any = SimpleNamespace(step=lambda place: ["srun"], interact=end)
    with pytest.raises(SystemExit):
        LoginNode.enter(login, ("7", "s1"), ["top"], terminal=True)


def test_a_command_in_a_pod(end: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    websocket = SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setattr(session, "open_exec", lambda *given: websocket)
    monkeypatch.setattr(session.PodSession, "_join", end)
    api: Any = SimpleNamespace(name="cluster")
    with pytest.raises(SystemExit):
        session.PodSession(api, "pod", "container").run(["top"])
    assert closed == [True]


def test_what_a_command_of_run_needs_in_slurm_is_removed(
    end: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its secrets, above all: here before the command has begun, which would remove them."""
    erased: list[bool] = []
    there = SimpleNamespace(erase=lambda: erased.append(True), work="/work", step=lambda place: [])
    for name in ("look_plan", "look_command"):
        monkeypatch.setattr(looking, name, lambda *given: SimpleNamespace())
    monkeypatch.setattr(looking, "LoginNode", lambda *given: there)
    monkeypatch.setattr(looking, "options_of", lambda plan: there)
    monkeypatch.setattr(looking, "machine_options", lambda plan: [])
    monkeypatch.setattr(looking, "_send", end)
    job: Any = SimpleNamespace(plan=None, inventory=None, secrets={}, login=SimpleNamespace(job="demo", transport=None))
    with pytest.raises(SystemExit):
        looking.run_oneoff(job, ("7", "s1"), ["top"])
    assert erased == [True]
