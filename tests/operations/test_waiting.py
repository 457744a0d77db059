"""What `up` waits for: until every node runs, also where nobody watches and a node fails at once."""

from __future__ import annotations

import threading
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.operations.lifecycle import wait
from jobctl.jobspec.operations.reporter import SILENT
from jobctl.jobspec.plan.generation import AutonomyTerms

from .test_ended import RUNS

ALONE = replace(RUNS, host_timeout=30.0, autonomy=AutonomyTerms(3, (), (1, 2)))
FAILED = ObservedNode(0, "trainer", "a", "failed", launcher=7, generation=2, reason="it broke")
RUNNING = replace(FAILED, state="running", reason=None)


@pytest.fixture
def waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return how `up` finds a job, and after how many seconds; it looks once a second."""
    clock = [0.0]

    def play(looks: list[Observed], *without: str) -> tuple[str, str | None, float]:
        def observe() -> Observed:
            clock[0] += 1.0
            assert clock[0] < 100.0, "it waits for ever"
            look = looks.pop(0) if len(looks) > 1 else looks[0]
            if look.unreachable and not any(node.reachable for node in look.nodes):
                raise AllUnreachable({"a": HostError("a", "unreachable", "it does not answer")}, look)
            return look

        job = SimpleNamespace(name="demo", lock=tmp_path / "lock")
        handle: Any = SimpleNamespace(observe=observe, job=job, failures={})
        state = wait.wait_until_up(handle, SILENT, without)
        return state.phase, state.reason, clock[0]

    monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(wait, "pause", lambda seconds: None)
    return play


def seen(node: ObservedNode, generation: Any = ALONE) -> Observed:
    return Observed(Control(generation, Ledger(0.0)), (node,), supervised=False)


def test_launchers_that_begin_again_by_themselves_are_waited_for(waited: Any) -> None:
    assert waited([seen(FAILED), seen(FAILED), seen(RUNNING)]) == ("running", None, 3.0)
    over = replace(ALONE, why="all restarts are used up", command="finish")
    assert waited([seen(FAILED), seen(replace(FAILED, state="pending"), over)])[0] != "degraded"


def test_not_for_ever(waited: Any) -> None:
    words = "node 0: it broke; no supervisor runs: its launchers go on by themselves, or end it"
    assert waited([seen(FAILED)]) == ("degraded", words, 30.0 + wait.AUTONOMY_MARGIN + 1.0)


def test_who_goes_on_is_said_of_a_launcher_that_is_gone(waited: Any) -> None:
    _, reason, _ = waited([Observed(Control(ALONE, Ledger(0.0)), (replace(FAILED, launcher=None), RUNNING), False)])
    assert "its launchers go on once node 0 is started again, by its engine or `jobctl up`" in str(reason)


def test_where_launchers_may_not_nobody_goes_on(waited: Any) -> None:
    words = "node 0: it broke; no supervisor runs: `jobctl up` or `jobctl supervise` goes on"
    assert waited([seen(FAILED, RUNS)]) == ("degraded", words, 1.0)


GONE = replace(RUNNING, state="lost", reachable=False, reason="it does not answer")
CUT_OFF = replace(seen(GONE, RUNS), supervised=True, unreachable={"a": "it does not answer"})
ELSEWHERE = replace(RUNNING, node=1, host="b")


def test_a_cut_of_a_moment_is_waited_for(waited: Any) -> None:
    """The job was started already: that no host answers now is no reason to call it failed, or not changed."""
    assert waited([CUT_OFF, CUT_OFF, seen(RUNNING, RUNS)]) == ("running", None, 3.0)
    assert waited([CUT_OFF]) == ("unknown", "a cannot be reached", 3.0 + wait.UNHEARD + 1.0)


def test_one_host_is_waited_for_unless_it_is_known_to_be_away(waited: Any) -> None:
    both = replace(RUNS, members=(*RUNS.members, replace(RUNS.members[0], node=1)))
    cut = Observed(Control(both, Ledger(0.0)), (GONE, ELSEWHERE), supervised=True, unreachable={"a": "silent"})
    well = replace(cut, nodes=(RUNNING, ELSEWHERE), unreachable={})
    assert waited([cut, cut, well]) == ("running", None, 3.0)
    assert waited([cut], "a") == ("degraded", "node 0: it does not answer", 4.0)


def test_a_look_does_not_outlast_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that says nothing would keep it for a minute; without a single look nothing is known."""
    asked, answers = threading.Event(), threading.Event()

    def observe() -> Observed:
        asked.set()
        answers.wait(10.0)
        raise AssertionError("nobody listens any more")

    handle: Any = SimpleNamespace(observe=observe, places=lambda: ("a", "b"), job=SimpleNamespace(name="demo"))
    handle.interval = 1.0
    monkeypatch.setattr(wait, "MIN_LOOK_TIMEOUT", 0.05)
    try:
        state = wait.wait_until_ended(handle, 0.0)
    finally:
        answers.set()
    assert (asked.wait(60.0), state.over, state.phase) == (True, False, "unknown")
    words = "whether job `demo` has ended is not known after 3s: no answer from a, b yet"
    assert wait.goes_on(state, "3s") == words


@pytest.mark.parametrize("seconds", [1e15, float("inf")])
def test_a_wait_may_be_as_long_as_one_likes(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, asked = SimpleNamespace(phase="succeeded", over=True), list[float]()
    really_wait = futures.wait

    def wait_for(them: Any, timeout: float) -> None:
        asked.append(timeout)
        really_wait(them, 60.0)

    monkeypatch.setattr(futures, "wait", wait_for)
    monkeypatch.setattr(wait, "observe", lambda handle: None)
    monkeypatch.setattr(wait, "state_of", lambda handle, observed: ended)
    handle: Any = SimpleNamespace()
    assert wait.wait_until_ended(handle, seconds) is ended
    assert asked == [threading.TIMEOUT_MAX]  # beyond that Python raises OverflowError


def test_a_wait_says_for_whom_it_waits_if_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each time that nobody answers for long."""
    clock, said = [0.0], list[tuple[float, str]]()
    unknown = SimpleNamespace(phase="unknown", reason="a cannot be reached", over=False)
    running, ended = SimpleNamespace(phase="running", over=False), SimpleNamespace(phase="succeeded", over=True)
    looks = iter([running, *[unknown] * 5, running, *[unknown] * 30, running, *[unknown] * 12, ended])
    monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(wait, "pause", lambda seconds: clock.__setitem__(0, clock[0] + 1.0))
    monkeypatch.setattr(wait, "observe", lambda handle: None)
    monkeypatch.setattr(wait, "state_of", lambda handle, observed: next(looks))
    handle: Any = SimpleNamespace(interval=1.0)
    assert wait.wait_until_ended(handle, None, lambda text: said.append((clock[0], text))) is ended
    words = "unknown for a while: a cannot be reached; still waiting for an answer, Ctrl-C gives up"
    assert said == [(17.0, words), (48.0, words)]
