"""A job is followed on a host, which this machine plays: launchers are heard and answered, and what they say is read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import watch
from jobctl.jobspec.deploy.host.containers import _seen
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.watch import Following, HostFeed, HostFollowed, _is_gone, _rank
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.host_state import HostState, merge
from jobctl.jobspec.deploy.model.liveness import EXPIRY, FailureDetector
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.lock import Locked
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.generation import Generation, Member, Moves, OldPlace, RendezvousPoint, first_generation
from jobctl.jobspec.render.payload import control_json
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO
from tests.tools.waiting import PATIENCE, promptly

FIRST = first_generation(replace(TWO, nodes=TWO.nodes[:1]))


def following(host_job: HostJob, me: str = "me") -> Following:
    detector = FailureDetector(lambda: 5.0, "token")  # by whose clock no host is silent, however slow this machine is
    detector.expect(FIRST)
    return Following([host_job], detector, me)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts have as long as it takes to answer at first, and to let go at last."""
    for name in ("MEET", "RELEASE"):
        monkeypatch.setattr(watch, name, PATIENCE)


@pytest.fixture
def host_job(tmp_path: Path) -> HostJob:
    """A host with a job, and without an engine that answers."""
    host = Host("h0", dir=str(tmp_path / "dir"), docker=f"unix://{tmp_path}/no.sock")
    made = HostJob(host, LocalTransport("h0"), "job", "ssh")
    made.send([], ["run", "node-0"])
    made.hand_over(b"", control_json(FIRST))
    return made


@pytest.fixture
def followed(host_job: HostJob, monkeypatch: pytest.MonkeyPatch) -> Iterator[Following]:
    """The host as it is followed, by its channel alone: without its engine nobody has it read again and again."""
    monkeypatch.setattr(HostFollowed, "_hear_engine", lambda self: None)
    made = following(host_job)
    made.start()
    yield made
    made.close()


def say(host_job: HostJob, **line: Any) -> None:
    """Write a launcher's line into the pipe, as launchers do. The host answers a moment before it has made the pipe."""
    (feed,) = promptly(lambda: list(Path(host_job.work, "run").glob("feeds/*")))
    text = {"node": 0, "tick": "t1", "generation": FIRST.rendezvous.id, "report": "1.1", "progress": 5, **line}
    handle = os.open(feed, os.O_WRONLY)
    os.write(handle, json.dumps(text).encode() + b"\n")
    os.close(handle)


def report(host_job: HostJob, **more: Any) -> None:
    path = Path(host_job.work, "node-0", "report.json")
    path.with_suffix(".new").write_text(json.dumps({"state": "running", "generation": 1, **more}))
    path.with_suffix(".new").replace(path)


def test_a_launcher_is_answered(followed: Following, host_job: HostJob) -> None:
    promptly(lambda: not followed.seen()[1])
    say(host_job)
    answer = Path(host_job.work, "node-0", "answer")
    assert promptly(lambda: answer.exists() and answer.read_text()).startswith("t1 token:")
    assert followed.detector.progress == {0: 5}


@pytest.mark.parametrize(("folder", "feed"), [(0o755, 0o600), (0o2755, 0o620)])
def test_neighbours_write_no_ticks(host_job: HostJob, monkeypatch: pytest.MonkeyPatch, folder: int, feed: int) -> None:
    """Users share groups. That of `container.user` is given the folder."""
    monkeypatch.setattr(HostFollowed, "_hear_engine", lambda self: None)
    feeds = Path(host_job.work, "run", "feeds")
    feeds.mkdir()
    feeds.chmod(folder)
    made = following(host_job)
    made.start()
    assert [stat.S_IMODE(path.stat().st_mode) for path in feeds.iterdir()] == [feed]
    made.close()


def test_an_answer_goes_through_no_link_of_a_container(followed: Following, host_job: HostJob, tmp_path: Path) -> None:
    """A process in the container may write into the node's folder and into the pipe, and is not the user who logs in."""
    node, victim = Path(host_job.work, "node-0"), tmp_path / ".bashrc"
    victim.write_text("mine")
    (node / "answer").symlink_to(victim)
    promptly(lambda: not followed.seen()[1])
    say(host_job, tick="t1")
    said = promptly(lambda: list(Path(host_job.work, "run", "answers").glob("0")))
    assert promptly(said[0].read_text).startswith("t1 token:")
    assert victim.read_text() == "mine"


def test_an_answer_names_no_tick_that_is_a_command(followed: Following, host_job: HostJob) -> None:
    promptly(lambda: not followed.seen()[1])
    say(host_job, tick="touch /tmp/x;#")
    say(host_job, tick="x" * 65)
    say(host_job, tick="t1")
    answer = Path(host_job.work, "node-0", "answer")
    assert promptly(lambda: answer.exists() and answer.read_text()).startswith("t1 token:")


def test_launchers_of_earlier_versions_find_the_answer_in_their_folder(
    followed: Following, host_job: HostJob, tmp_path: Path
) -> None:
    """A container sees the folder of its node and `run` beside each other; that of a spare has the folders of all nodes deeper."""
    promptly(lambda: not followed.seen()[1])
    node = Path(host_job.work, "node-0")
    (node / "answer").write_text("of an earlier supervisor")
    say(host_job)
    promptly(lambda: (node / "answer").is_symlink() and (node / "answer").read_text())
    assert os.readlink(node / "answer") == "../run/answers/0"


def test_a_host_that_is_heard_again_has_others_tried_at_once(
    host_job: HostJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostFollowed, "_hear_engine", lambda self: None)
    made = following(host_job)
    made.hosts[0]._fail(HostError("h0", "no-route", "no route to its address"))
    other = made.pauses.one()
    other.fail()
    made.start()
    promptly(lambda: other.is_over)
    made.close()


def test_what_is_no_tick_ends_nothing(followed: Following, host_job: HostJob) -> None:
    promptly(lambda: not followed.seen()[1])
    say(host_job, node="none")
    say(host_job, tick="t2")
    answer = Path(host_job.work, "node-0", "answer")
    assert promptly(lambda: answer.exists() and answer.read_text()).startswith("t2 ")


def test_a_host_is_read_again_when_a_launcher_says_that_its_report_is_new(
    followed: Following, host_job: HostJob
) -> None:
    promptly(lambda: not followed.seen()[1])
    say(host_job, report="1.1")
    promptly(lambda: Path(host_job.work, "node-0", "answer").exists())
    report(host_job, progress=7)
    say(host_job, report="1.2")
    promptly(lambda: followed.seen()[0]["h0"].reports.get(0))


def test_a_host_that_could_not_be_read_is_read_again(
    followed: Following, host_job: HostJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has changed may be that a container died: nothing of it is heard after that, which would have the host read."""
    monkeypatch.setattr(watch, "REREAD_INTERVAL", float("inf"))
    promptly(lambda: not followed.seen()[1])
    observe, failed = host_job.observe, 0

    def fails(*containers: Any) -> HostState:
        """Fail until two reads have failed after the last tick: one that went on, and one that was due."""
        nonlocal failed
        failed += followed.detector.progress == {0: 6}
        if failed < 3:
            raise HostError("h0", "timeout", "it has other things to do")
        return observe(*containers)

    monkeypatch.setattr(host_job, "observe", fails)
    report(host_job, progress=7)
    say(host_job, report="1.2")
    say(host_job, report="1.2", tick="t2", progress=6)
    promptly(lambda: failed >= 3 and followed.seen()[0]["h0"].reports.get(0))


def test_a_launcher_is_believed_where_the_engine_does_not_answer(followed: Following, host_job: HostJob) -> None:
    report(host_job, progress=7)
    seen = followed.look("h0")
    assert (seen.blind, seen.reports[0]["progress"]) == (True, 7)

    def put_together(seen: Any, problems: Any) -> Observed:
        silent = {host: error.message for host, error in problems.items()}
        return merge(seen, silent, {0: "h0"}, supervised=True)

    promptly(lambda: not followed.seen()[1])
    feed = HostFeed(followed, put_together)
    (node,) = feed.observe().nodes
    assert (node.state, node.alive, node.progress) == ("running", True, 7)
    say(host_job, progress=9)
    promptly(lambda: followed.detector.progress)
    assert feed.observe().nodes[0].progress == 9  # of steps a launcher's ticks are newer than its report


@pytest.mark.parametrize(
    ("listed", "told", "running", "paused"),
    [
        ("running", None, True, False),
        ("running", "pause", True, True),
        ("paused", None, True, True),
        ("paused", "unpause", True, False),
        ("paused", "die", False, True),
        ("running", "die", False, False),
        ("running", "start", True, False),
    ],
)
def test_an_engine_tells_of_a_change_before_it_lists_it(
    host_job: HostJob, listed: str, told: str | None, running: bool, paused: bool
) -> None:
    host = following(host_job).hosts[0]
    host._told_last = {} if told is None else {"c": told}
    seen = host._as_told(_seen({"Id": "c", "State": listed}))
    assert (seen.running, seen.paused) == (running, paused)


def test_a_launcher_that_was_only_announced_is_not_believed(followed: Following, host_job: HostJob) -> None:
    """Its container could not be started: the engine did not answer."""
    host_job.announce(0, {"state": "stopped", "generation": 1})
    seen = followed.look("h0")
    (node,) = merge({"h0": seen}, {}, {0: "h0"}, supervised=True).nodes
    assert (seen.blind, node.state, node.alive) == (True, "pending", False)


def test_an_old_place_is_empty_once_its_host_answers_without_the_node() -> None:
    members = (Member(0, 0, ("trainer",), "h2", "h2", 1), Member(1, 1, ("trainer",), "h1", "h1", 1))
    moves = Moves((OldPlace(0, "h0"),), 2)
    generation = Generation("job", "run", 2, "run", 0.0, members, RendezvousPoint("h2", 1, "g2"), None, moves=moves)
    states = {host: HostState((), Control(generation), {}) for host in ("h0", "h1", "h2")}
    left = SeenContainer(0, "trainer", "c", running=True, artefact=None, owner=None)
    states["h0"] = replace(states["h0"], containers=(left,))
    told: list[Any] = []
    stub: Any = SimpleNamespace(
        hosts=[SimpleNamespace(name=host, looked=7.0) for host in states],
        seen=lambda: (states, {}),
        outranked=lambda: None,
        look_again=lambda hosts, age: told.append(hosts),
        detector=FailureDetector(lambda: 5.0, "token"),
    )
    feed = HostFeed(stub, lambda seen, problems: merge(seen, {}, {0: "h2", 1: "h1"}, supervised=True))
    for state, empty in (
        (states["h0"], set()),
        (replace(states["h0"], containers=(), blind=True), set()),  # nobody can tell
        (replace(states["h0"], containers=()), set(moves.places)),
    ):
        states["h0"] = state
        feed.observe()
        assert stub.detector._vacant == empty
    assert {"h0"} in told  # it is read again soon, as long as the node waits


def test_a_job_is_followed_by_one(host_job: HostJob) -> None:
    first, second = (
        following(host_job),
        following(HostJob(host_job.host, LocalTransport("h0"), "job", "ssh"), "another"),
    )
    first.who = {**first.who, "host": "elsewhere"}
    first.start()
    promptly(lambda: not first.seen()[1])
    with pytest.raises(Locked, match="on elsewhere"):
        second.start()
    assert not first.seen()[1]
    first.close()


def test_who_takes_over_waits_for_the_leases_of_the_one_before(host_job: HostJob) -> None:
    (Path(host_job.own) / "supervisor").write_text("me\n")
    for me, foreign in (("me", False), ("another", True)):
        made = following(host_job, me)
        made.start()
        promptly(lambda made=made: not made.seen()[1])
        assert made.detector._foreign == foreign
        made.close()


def test_the_one_who_began_first_goes_on() -> None:
    old, new = {"since": 5.0, "host": "b", "pid": 1}, {"since": 6.0, "host": "a", "pid": 1}
    assert _rank(old) < _rank(new)
    assert _rank({**new, "since": 5.0}) < _rank(old)


def test_a_supervisor_of_this_machine_that_has_ended_is_gone(followed: Following) -> None:
    me = followed.who
    assert _is_gone(me, 30.0)  # this very process, before
    assert not _is_gone({**me, "host": "elsewhere"}, 30.0)
    assert _is_gone({**me, "pid": 1, "start_ticks": -5}, 30.0)


def test_a_lock_without_a_name_is_one_that_is_let_go_unless_it_stays_so(host_job: HostJob, tmp_path: Path) -> None:
    """The script that follows a host for a supervisor that was cut off erases the name, and ends a moment later."""
    lock = Path(host_job.own) / "supervisor.lock"
    for age, left in ((0.0, None), (EXPIRY + 5.0, Locked)):
        one = following(host_job)
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            os.utime(lock, (time.time() - age,) * 2)
            found = contextlib.nullcontext() if left is None else pytest.raises(left, match="did not say who it is")
            with found:
                one.start()
            assert (one.outranked() is None) == (left is None)
        if left is None:
            promptly(lambda one=one: not one.seen()[1])
        one.close()


def test_a_host_without_the_job_is_idle_and_no_trouble(tmp_path: Path) -> None:
    made = following(HostJob(Host("h0", dir=str(tmp_path / "dir")), LocalTransport("h0"), "job", "ssh"))
    made.start()
    seen, problems = made.seen()
    made.close()
    assert (seen["h0"].there, dict(problems)) == (False, {})
    assert isinstance(seen["h0"], HostState)


def test_a_host_that_the_job_was_taken_from_is_not_silent(host_job: HostJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last tick may be older than a silent host's when it says that the job is gone: a supervisor would stay for ever."""
    monkeypatch.setattr(HostFollowed, "_hear_engine", lambda self: None)
    late = 0.0
    detector = FailureDetector(lambda: 5.0 + late, "token")
    made = Following([host_job], detector, "me")
    made.start()
    promptly(lambda: made.seen()[0])
    shutil.rmtree(host_job.work)
    promptly(lambda: made.hosts[0]._idle)  # no tick comes after that
    late = 60.0
    seen, _ = made.seen()
    made.close()
    assert ({host: one.there for host, one in seen.items()}, detector.seconds_overdue("h0") is None) == (
        {"h0": False},
        False,
    )


def test_who_stops_following_waits_until_the_host_has_let_go(
    host_job: HostJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an `up` at that moment takes the lock for that of a supervisor, and leaves none behind."""
    released = []

    def slowly(self: HostFollowed) -> None:
        self.met.set()
        self._over.wait()
        time.sleep(0.2)
        released.append(self.name)

    monkeypatch.setattr(HostFollowed, "_hear_engine", lambda self: None)
    monkeypatch.setattr(HostFollowed, "_follow_until_over", slowly)
    made = following(host_job)
    made.start()
    made.close()
    assert released == ["h0"]
