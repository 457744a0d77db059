"""What launchers have kept, collected into this machine's history: each thing once, whoever tells of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.launcher_events import LATE, joined, kept_events
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.events import SLACK, KnownEvents
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.gathering import Place, gather
from jobctl.jobspec.report.report import tell

BEGAN = 1000.5
NODES = (("h0", 0), ("h1", 1))


def event(kind: str, at: float, /, **fields: Any) -> dict[str, Any]:
    return {"event": kind, "time": at, "began": BEGAN, "generation": 1, **fields}


def begins(number: int, at: float, **fields: Any) -> dict[str, Any]:
    hosts = {"0": "h0", "1": "h1"}
    return event("generation", at, **{"generation": number, "members": [0, 1], "hosts": hosts, "port": 7, **fields})


def begun(node: int, at: float, *, standby: bool = True, number: int = 1) -> dict[str, Any]:
    way = {"standby": standby, "cold_because": None if standby else "it is the first start"}
    return event("generation-begun", at, generation=number, node=node, members=[0, 1], by="launchers", cause="c", **way)


class Job:
    """A job whose launchers have kept events, and this machine's history of it."""

    def __init__(self, root: Path) -> None:
        self.job = JobDir(root / "jobs" / "job")
        self.files: dict[Place, dict[str, Any]] = {}
        self.read: list[Place] = []
        self.away: set[Place] = set()

    def keep(self, place: Place, *told: dict[str, Any], dropped: int = 0, file: str | None = None) -> None:
        name = file or f"file-{place[1]}"
        self.files[place] = {"version": 1, "file": name, "dropped": dropped, "events": list(told)}

    def gather(self, now: float = 2000.0) -> None:
        reports = {
            place: {"events": {"file": kept["file"], "count": kept["dropped"] + len(kept["events"])}}
            for place, kept in self.files.items()
        }

        def fetch(places: Sequence[Place]) -> Mapping[Place, dict[str, Any] | None]:
            self.read += places
            return {place: None if place in self.away else self.files[place] for place in places}

        gather(self.job, reports, fetch, now)

    @property
    def told(self) -> list[dict[str, Any]]:
        return events.read(self.job.events)[0]

    @property
    def messages(self) -> list[str]:
        return [one["message"] for one in self.told]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


FAILURE = event("failure", 1010.0, node=1, rank=1, kind="signal", exit_code=137, reason="rank 1 was killed by SIGKILL")
CAUSE = "node 1: rank 1 was killed by SIGKILL (the launchers agreed)"


def story(job: Job) -> None:
    """What two launchers tell of a failure that they have mended."""
    second = begins(2, 1011.0, by="launchers", cause=CAUSE)
    for place in NODES:
        own = [event("node", 1002.0, node=place[1], host=place[0], state="running")]
        tail = {"tail": ["out of luck"] if place[1] else []}
        job.keep(place, begins(1, 1001.0 + place[1], by="supervisor", cause="`up`"), *own, {**FAILURE, **tail}, second)


def test_each_thing_is_told_once_in_order_of_time(job: Job) -> None:
    story(job)
    for _ in range(2):
        job.gather()
    assert job.messages == [
        "generation 1 begins: `up`",
        "node 0 on h0 runs generation 1",
        "node 1 on h1 runs generation 1",
        "node 1: rank 1 was killed by SIGKILL; the launchers decided",
        f"generation 2 begins: {CAUSE}",
    ]
    assert job.told[3]["tail"] == ["out of luck"]  # of the node that knows it
    assert len({one["id"] for one in job.told}) == 5
    assert job.read == list(NODES)  # what has not changed is not read again


def test_the_report_has_the_failure(job: Job) -> None:
    story(job)
    job.gather()
    found = tell("job", job.told, (), 2000.0)
    assert found is not None
    assert [(one.node, one.generation) for one in found.failures] == [(1, 1)]


def test_a_job_that_was_brought_up_again_elsewhere_is_another_run(job: Job) -> None:
    """Another machine has taken it down meanwhile, and tells nothing of that here."""
    story(job)
    job.gather()
    again = {**begins(1, 1500.0), "began": 1499.0}
    job.keep(NODES[0], again, file="another")
    job.keep(NODES[1], again, file="one")
    job.gather()
    found = tell("job", job.told, (), 2000.0)
    assert found is not None
    assert (found.begin, found.failures) == (1500.0, ())


def test_what_this_machine_has_told_of_is_not_told_again(job: Job) -> None:
    """By a supervisor or a command, after the job was brought up; not what was told of an earlier one."""
    story(job)
    events.record(job.job.events, BEGAN - SLACK - 1, "failure", "of an earlier job", generation=1, node=1)
    events.record(job.job.events, BEGAN - 0.1, "step", "generation 1", step="generation", generation=1)
    events.record(job.job.events, 1003.0, "node", "it runs", generation=1, node=1, state="running")
    job.gather()
    assert job.messages == [
        "of an earlier job",
        "generation 1",
        "node 0 on h0 runs generation 1",
        "it runs",
        "node 1: rank 1 was killed by SIGKILL; the launchers decided",
        f"generation 2 begins: {CAUSE}",
    ]


def test_a_host_that_does_not_answer_is_collected_later(job: Job) -> None:
    story(job)
    job.away = {("h1", 1)}
    job.gather()
    assert "node 1 on h1 runs generation 1" not in job.messages
    job.away = set()
    job.gather()
    assert "node 1 on h1 runs generation 1" in job.messages
    assert len(job.told) == 5


def test_how_a_generation_was_started_is_told_once_all_nodes_have_said_so(job: Job) -> None:
    job.keep(NODES[0], begins(1, 1001.0), begun(0, 1002.0))
    job.keep(NODES[1], begins(1, 1001.0))
    job.gather(now=1003.0)
    assert job.messages == ["generation 1 begins"]
    job.keep(NODES[1], begins(1, 1001.0), begun(1, 1004.0, standby=False))
    job.gather(now=1005.0)
    told = job.told[-1]
    assert told["message"] == "generation 1 was started cold: it is the first start"
    known = {
        "generation": 1,
        "by": "launchers",
        "cause": "c",
        "standby": False,
        "cold_because": "it is the first start",
    }
    assert {name: value for name, value in told.items() if name not in ("id", "time", "event", "message")} == known


def test_nobody_waits_for_ever_for_a_node_that_does_not_say_so() -> None:
    def told(*kept: dict[str, Any], now: float) -> tuple[list[str], bool]:
        known = kept_events({"file": "x", "events": list(kept)})
        assert known is not None
        found, whole = joined(known.events, now)
        return [one["event"] for one in found], whole

    one = begun(0, 1002.0)
    assert told(one, now=1002.0 + LATE) == ([], False)
    assert told(one, now=1003.0 + LATE) == (["generation-begun"], True)
    assert told(one, begins(2, 1003.0), now=1003.0) == (["generation-begun", "generation"], True)


def test_what_is_gone_before_anybody_has_read_it_is_counted(job: Job) -> None:
    job.keep(NODES[0], begins(8, 1040.0), dropped=12)
    job.gather()
    assert job.messages == [
        "node 0 on h0 has kept its last events only: 12 older ones are gone",
        "generation 8 begins",
    ]
    job.keep(NODES[0], begins(8, 1040.0), begins(9, 1041.0), dropped=12)  # from here on nothing is missing
    job.gather()
    assert job.messages[2:] == ["generation 9 begins"]
    job.keep(NODES[0], begins(9, 1041.0), begins(10, 1042.0), dropped=13)
    job.gather()
    assert job.messages[3:] == ["generation 10 begins"]


def test_what_is_not_as_it_should_be_is_left_out(job: Job) -> None:
    """Anything in a container can write the file."""
    odd = [
        7,
        {},
        event("generation", 1.0, generation="2"),
        event("rm -rf", 1.0),
        event("generation", float("1e99")),
        {**begins(3, 1001.0), "began": "x"},
        {**begins(4, 1001.0), "secret": "s3cret", "hosts": [1], "port": "x"},
    ]
    job.keep(NODES[0], *odd)  # type: ignore[arg-type]
    job.gather()
    [told] = job.told
    assert told == {
        "time": 1001.0,
        "event": "generation",
        "message": "generation 4 begins",
        "id": "1000.5 generation 4",
        "generation": 4,
        "members": [0, 1],
        "hosts": None,
        "port": None,
    }
    for data in (None, {}, {"file": 7}, {"file": "x", "events": 7, "dropped": -1}):
        kept = kept_events(data)
        assert kept is None or kept.events == ()


def test_two_who_collect_at_once_tell_it_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both would have read before either writes, were it not for the lock."""
    read, both = KnownEvents._read, threading.Barrier(2)

    def read_and_wait(log: KnownEvents) -> None:
        read(log)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # in vain: the other one waits for the lock

    monkeypatch.setattr(KnownEvents, "_read", read_and_wait)
    told = [{"id": f"{BEGAN!r} generation {n}", "time": BEGAN, "event": "generation"} for n in range(50)]
    logs = [KnownEvents(job.job.events) for _ in range(4)]
    threads = [threading.Thread(target=log.add, args=(told,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(job.told) == 50


def test_after_the_history_was_removed_it_is_read_anew(job: Job) -> None:
    story(job)
    log = KnownEvents(job.job.events)
    job.gather()
    log.look()
    job.job.events.unlink()
    events.record(job.job.events, 1.0, "up", "up")
    assert len(log.add([{"id": f"{BEGAN!r} generation 1", "time": BEGAN, "event": "generation"}])) == 1


def test_a_full_disk_keeps_nobody_from_looking(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    story(job)
    with monkeypatch.context() as full:

        def refuse(path: Path, line: str) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(events, "append_line", refuse)
        job.gather()
    assert job.told == []
    job.gather()
    assert len(job.told) == 5


def test_a_job_that_was_only_looked_at_from_here_is_not_known_here(job: Job) -> None:
    assert not job.job.is_known()
    story(job)
    job.gather()
    assert json.loads(job.job.collected.read_text()) == {"file-0": 4, "file-1": 4}
    assert not job.job.is_known()
    (job.job.root / "history").mkdir()
    assert job.job.is_known()
