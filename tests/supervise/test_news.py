"""What a supervisor records is what people are told: its events, read as news."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.launcher.telling.news import News
from jobctl.jobspec.supervise.decisions import Continue, Decision, Leave, Rejoin, Restart, Wait
from jobctl.jobspec.supervise.loop import FAST_POLL_INTERVAL, POLL_INTERVAL, Supervisor

from .clocks import ByHand
from .jobs_on_hosts import HOST_FAILURE, failed, job, lost, node


class Watched:
    """A supervisor of a job without hosts, and what people are told of it."""

    def __init__(self, path: Path) -> None:
        self.job, self.clock = JobDir(path / "jobs" / "job"), ByHand()
        self.job.create()
        self.begin()

    def begin(self) -> None:
        """Begin to watch; whoever did before was killed."""
        deployer: Any = SimpleNamespace(job=self.job, plan=None, inventory=None, keep=lambda ledger: None)
        self.supervisor = Supervisor(deployer, self.clock, lambda text: None)

    @property
    def told(self) -> list[tuple[str, tuple[int, ...]]]:
        news = News("job", "job-4")
        news.read(events.read(self.job.events)[0])
        return [(one.event, one.nodes) for one in news.found]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


LOST = job(node(0), lost(1), node(2))
SOON_MOVED = Wait("node 1: h1 is not heard; moves …", lasting=False)
FOR_A_PERSON = Wait("node 1: h1 is not heard; there is no other host for it")


def test_a_person_is_told_when_the_job_cannot_go_on_without_one(watched: Watched) -> None:
    watched.supervisor._wait(SOON_MOVED, LOST)
    assert watched.told == []
    watched.supervisor._wait(FOR_A_PERSON, LOST)
    watched.begin()
    watched.supervisor._wait(FOR_A_PERSON, LOST)
    assert watched.told == [("host-lost", (1,)), ("waiting", (1,))]


def play(watched: Watched, monkeypatch: pytest.MonkeyPatch, seen: list[tuple[Observed, Decision]], feed: Any) -> None:
    """Have the supervisor see a job, and decide, time and again; at last it leaves."""
    supervisor, looks = watched.supervisor, iter([*seen, (LOST, Leave("the job is down"))])
    decided: list[Decision] = []

    def observe() -> Observed:
        observed, decision = next(looks)
        decided.append(decision)
        return observed

    for name in ("_is_behind", "_gather", "_plan"):
        monkeypatch.setattr(supervisor, name, lambda *args: None)
    monkeypatch.setattr(supervisor, "_decide", lambda *args: decided[-1])
    monkeypatch.setattr(supervisor, "_is_left", lambda feed: True)
    feed.observe = observe
    assert supervisor.run(feed) == "the job is down"


def test_a_node_that_is_about_to_move_is_looked_at_often(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves the moment that it may; whatever lasts is not that urgent."""
    waits = list[float]()
    feed: Any = SimpleNamespace(wait=waits.append, detector=FailureDetector(float, "me"))
    play(watched, monkeypatch, [(LOST, SOON_MOVED), (LOST, FOR_A_PERSON)], feed)
    assert waits == [FAST_POLL_INTERVAL, POLL_INTERVAL]


def test_a_failed_node_is_left_to_launchers_for_as_long_as_another_host_is_not_heard(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may hear that host, and can begin without the supervisor then."""
    left, feed = list[frozenset[int]](), SimpleNamespace(detector=FailureDetector(float, "me"))
    feed.wait = lambda seconds: left.append(feed.detector.left)
    one_failed = job(node(0, state="failed"), lost(1), node(2))
    play(watched, monkeypatch, [(LOST, SOON_MOVED), (one_failed, SOON_MOVED), (job(node(0)), Continue())], feed)
    assert left == [frozenset(), frozenset({0}), frozenset()]


def test_a_wait_is_over_when_the_job_goes_on(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the next supervisor sees that; it is told once."""
    whole, feed = (
        job(node(0), node(1), node(2)),
        SimpleNamespace(detector=FailureDetector(float, "me"), wait=lambda seconds: None),
    )
    watched.supervisor.recorder.record("waiting", "cannot act: no space left", lasting=True)
    watched.begin()
    play(watched, monkeypatch, [(whole, Continue()), (whole, Continue())], feed)
    assert watched.told == [("waiting", ()), ("recovered", ())]
    watched.supervisor.recorder.record("waiting", "cannot change the job: no", lasting=True)
    play(watched, monkeypatch, [(whole, Continue()), (whole, Continue())], feed)
    assert watched.told == [("waiting", ()), ("recovered", ())] * 2


def test_a_wait_for_nodes_or_before_a_failure_ends_with_them(watched: Watched) -> None:
    recorder = watched.supervisor.recorder
    watched.supervisor._wait(FOR_A_PERSON, LOST)
    recorder.goes_on()
    recorder.record("waiting", "cannot change the job: no", lasting=True)
    recorder.record("failure", "node 1 failed", generation=4, node=1)
    recorder.goes_on()
    assert [event["event"] for event in events.read(watched.job.events)[0]] == ["waiting", "waiting", "failure"]


@pytest.mark.parametrize("kind", ["hang", "host"])
def test_a_failure_is_told_once_though_two_supervisors_see_it(watched: Watched, kind: str) -> None:
    failure = replace(HOST_FAILURE, kind=kind)
    restart = Restart("node 1: h1 is lost", failure, 0.0, {1: "s1"})
    watched.supervisor.recorder.failure(restart, LOST)
    watched.begin()
    watched.clock.time += 5
    watched.supervisor.recorder.failure(restart, LOST)
    assert watched.told == [("hang" if kind == "hang" else "host-lost", (1,))]


def test_a_failure_is_recorded_once_though_the_job_waits_and_other_nodes_tell_later_steps(watched: Watched) -> None:
    """What is not in a message is in none: the second record of a failure would be missing there."""

    def tell(node: int, step: int) -> None:
        failure = replace(failed(), node=node, progress=step)
        restart = Restart(f"node {node}: rank {node} exited with code 1", failure, 0.0)
        watched.supervisor._tell_failure(restart, LOST, feed)
        watched.clock.time += 1

    feed: Any = None  # nothing has hung
    tell(0, 590)
    watched.supervisor._wait(FOR_A_PERSON, LOST)
    tell(0, 597)
    watched.begin()
    tell(0, 598)
    tell(2, 598)
    found = [one["message"] for one in events.read(watched.job.events)[0] if one["event"] == "failure"]
    assert found == [
        "node 0: rank 0 exited with code 1 at step 590; restarting all nodes",
        "node 2: rank 2 exited with code 1 at step 598; restarting all nodes",
    ]


def test_a_hang_is_told_though_no_host_answers_when_it_was_found(watched: Watched) -> None:
    """Before it is told, all nodes are asked once more where their processes stand."""
    hang = Restart("node 1: no progress for 30 s", replace(failed(), kind="hang"), 0.0)
    answers: list[Any] = [HostError("h0", "unreachable", "no host answers"), LOST, LOST]

    def observe() -> Any:
        if isinstance(answer := answers.pop(0), HostError):
            raise answer
        return answer

    feed: Any = None
    watched.supervisor.deployer.observe = observe  # type: ignore[method-assign]
    watched.supervisor._decide = lambda *given: hang  # type: ignore[method-assign]
    with pytest.raises(HostError):
        watched.supervisor._tell_failure(hang, LOST, feed)
    for _ in range(2):
        watched.supervisor._tell_failure(hang, LOST, feed)
    assert watched.told == [("hang", (1,))]


def test_a_node_that_joins_again_has_recovered_when_it_runs(watched: Watched) -> None:
    rejoin = Rejoin("node 1: rank 1 was killed by SIGKILL", failed(alone=True), 0.0)
    for _ in range(2):
        watched.supervisor.recorder.notice(job(node(0), node(1, state="failed", failure=failed()), node(2)))
        watched.supervisor.actions._tell_rejoin(rejoin, LOST)
        watched.supervisor.recorder.notice(job(node(0), node(1), node(2)))
        watched.clock.time += 60
    assert watched.told == [("recovered", (1,)), ("recovered", (1,))]


def test_a_silent_host_keeps_no_supervisor_from_what_others_tell(watched: Watched) -> None:
    """It waits a few seconds for what it has just done."""
    begun: list[float] = []
    detector = SimpleNamespace(generation="a later one", begin_anew=lambda: begun.append(watched.clock.time))
    feed: Any = SimpleNamespace(detector=detector)
    observed, since = replace(LOST, unreachable={"h1": "not heard"}), watched.clock.time
    for _ in range(8):
        assert watched.supervisor._is_behind(observed, feed)
        watched.clock.time += 1.0
    assert begun[0] == since + 6.0
    detector.generation = observed.control.generation
    assert not watched.supervisor._is_behind(observed, feed)


def test_a_clock_that_is_set_back_keeps_no_supervisor_from_what_others_tell(watched: Watched) -> None:
    begun: list[float] = []
    detector = SimpleNamespace(generation="a later one", begin_anew=lambda: begun.append(watched.clock.time))
    feed: Any = SimpleNamespace(detector=detector)
    watched.supervisor._is_behind(LOST, feed)
    watched.clock.time -= 3600.0
    for _ in range(8):
        watched.supervisor._is_behind(LOST, feed)
        watched.clock.time += 1.0
    assert begun
