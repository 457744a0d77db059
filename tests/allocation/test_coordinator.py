"""A coordinator whose machines, and Slurm, are played: what it does before nodes have machines, and as a generation begins."""

from __future__ import annotations

import json
import select
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.allocation.coordinator import REVIVE, Coordinator
from jobctl.jobspec.allocation.generation import Generations
from jobctl.jobspec.allocation.messages import ANSWER_KEYS, LINGER, Datagrams
from jobctl.jobspec.launcher.restart_policy import certain_after
from jobctl.jobspec.spec.checks.slurm import MOST_NODES
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import GiveUp, World
from tests.supervise import observed_jobs

TEMPLATE = {
    "job": "demo",
    "run_id": "demo-1",
    "version": 1,
    "command": "run",
    "grace": 5.0,
    "port_is_given": True,
    "members": [{"node": node, "rank": node, "address": f"node-{node}", "roles": ["trainer"]} for node in (0, 1)],
    "rendezvous": {"address": "node-0", "port": 29500, "id": ""},
    "autonomy": {"restarts": 3, "rules": [], "ports": [20000, 29999], "failures": []},
}
SETTINGS = {
    "slots": [0, 0],
    "min_nodes": 2,
    "spares": 0,
    "shrinks": False,
    "host_timeout": 6.0,
    "stop_grace": 1.0,
    "checkpoint": None,
    "container": "none",
    "requeue": "off",
    "runner_python": "python3",
}
LOST = 9.0  # seconds: after a little less, a machine counts as lost


class PlayedAllocation:
    """An allocation of machines for a job of two nodes. `listed` are those that Slurm has for it, `started` the steps."""

    def __init__(self, work: Path, monkeypatch: pytest.MonkeyPatch, *hosts: str, **settings: Any) -> None:
        self.work, self.listed, self.started = work, list(hosts), list[str]()
        self.leaving: tuple[str, ...] = ()  # the machines whose runners were told to end
        self.alive: tuple[str, ...] = ()  # those whose runners have a launcher
        self.preempts = False  # whether Slurm gives the nodes to another job
        self.failing: tuple[str, ...] = ()  # the machines on which Slurm cannot launch a step
        (work / "run").mkdir()
        (work / "slurm.json").write_text(json.dumps({**SETTINGS, **settings}))
        (work / "control.json").write_text(json.dumps({**TEMPLATE, "checkpoint_dir": settings.get("checkpoint")}))
        for name, value in {"JOB_ID": "7", "JOB_NODELIST": ",".join(hosts)}.items():
            monkeypatch.setenv(f"SLURM_{name}", value)
        monkeypatch.setenv("SLURMD_NODENAME", hosts[0])
        self.coordinator = Coordinator(str(work))
        slurm: Any = SimpleNamespace(start_runners=self.start, go_on_later=self.go_on)
        slurm.machines_soon = lambda now: self.listed
        slurm.is_preempted = lambda: self.preempts
        self.coordinator.scheduler = slurm
        self.began = self.now = self.coordinator.started
        self.coordinator.steps["all"] = self.start(list(hosts))

    def start(self, hosts: list[str], *_: Any) -> Any:
        """Play a step, which ends at once where Slurm cannot launch it."""
        self.started.append(",".join(hosts))
        code = 1 if set(hosts) & set(self.failing) else None
        return SimpleNamespace(poll=lambda: code, terminate=lambda: None)

    def go_on(self, is_ended: object = None) -> tuple[str, str]:
        return "8", "submitted again as job 8"

    def hear(self, *hosts: str, address: str = "127.0.0.1", port: int = 9) -> None:
        """Play a tick of the runners there."""
        for host in hosts:
            said = {"who": host, "host": host, "slot": 0, "tick": 1, "node": None, "turn": 0, "names": 0}
            said |= {"leaving": host in self.leaving, "alive": host in self.alive}
            self.coordinator.hear(said, (address, port), self.now)

    def turn(self, seconds: float, *hosts: str) -> int | None:
        """Let time pass in which some machines are heard; return what `judge` does."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            self.hear(*hosts)
            self.coordinator.place(self.now)
            self.coordinator.revive(self.now)
        return self.coordinator.judge(self.now)

    @property
    def result(self) -> Any:
        return json.loads((self.work / "run" / "allocation.json").read_text())["result"]

    @property
    def events(self) -> list[str]:
        lines = (self.work / "run" / "events.jsonl").read_text().splitlines()
        return [json.loads(line)["message"] for line in lines]


def test_a_job_whose_checkpoint_directory_cannot_be_made_fails_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2", checkpoint=f"{tmp_path}/file/ck")
    assert job.turn(0.5, "s1", "s2") == 1
    assert (job.result["phase"], job.result["reason"]) == (
        *("failed", f"cannot make {tmp_path}/file/ck on s1: Not a directory"),
    )


def test_a_job_that_runs_goes_on_though_its_checkpoint_directory_cannot_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a fresh run: that would write over the checkpoints of the last one."""
    base = tmp_path / "ck"
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2", checkpoint=str(base))
    assert job.turn(0.5, "s1", "s2") is None
    assert base.is_dir()
    base.rmdir()
    base.write_text("")  # as where a mount is stale
    job.coordinator.begin()
    assert job.events[-2:] == [f"cannot make {base} on s1: File exists", "generation 2 on s1, s2"]
    assert job.turn(0.5, "s1", "s2") is None
    job.coordinator.generations.note(fresh=True)
    job.coordinator.begin()
    assert job.turn(0.5, "s1", "s2") == 1
    assert job.result["reason"] == f"cannot make {base}/fresh-1 on s1: Not a directory"


def test_a_runner_that_never_came_is_started_again_before_nodes_are_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while others still come: the step of many machines begins slowly."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2", "s3")
    job.turn(LOST - 2.0)
    job.turn(LOST - 2.0, "s1")
    assert job.started == ["s1,s2,s3"]
    job.turn(2.0, "s1")
    assert job.started == ["s1,s2,s3", "s2", "s3"]
    job.turn(1.0, "s1", "s2", "s3")
    assert sorted(job.coordinator.places.homes().values()) == ["s1", "s2"]


def test_a_runner_that_slurm_could_not_start_is_started_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine in a step of its own then: one that Slurm cannot reach fails a step of all."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2", host_timeout=300.0)
    job.coordinator.steps["all"] = SimpleNamespace(poll=lambda: 1)
    job.failing = ("s2",)
    job.turn(REVIVE)
    assert job.started == ["s1,s2", "s1", "s2"]
    job.failing = ()
    job.turn(300.0, "s1")
    assert job.started == ["s1,s2", "s1", "s2", "s2"]
    job.turn(0.5, "s1", "s2")
    assert sorted(job.coordinator.places.homes().values()) == ["s1", "s2"]


def test_a_job_whose_runners_cannot_be_started_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm may be able to start them later, so the job waits: `status` says where to look."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2")
    told = tmp_path / "run" / "allocation.json"
    for code, words in ((None, ""), (1, "; srun has ended with exit code 1: slurm.out says why")):
        job.coordinator.steps["all"] = SimpleNamespace(poll=lambda code=code: code, terminate=lambda: None)
        job.coordinator.tell_state(job.now)
        assert json.loads(told.read_text())["reason"] == f"waits for an answer of s1, s2{words}"


def test_a_job_that_cannot_begin_without_a_machine_that_slurm_took_begins_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2", "s3")
    job.listed = ["s1", "s2"]
    assert (job.turn(LOST, "s1"), job.coordinator.stopping) == (None, None)
    assert job.started == ["s1,s2,s3", "s2"]
    job.listed = ["s1"]
    assert job.turn(LOST, "s1") == 0
    assert job.events[-1] == "Slurm has taken s2, s3 out of the allocation: submitted again as job 8"


def test_a_spare_that_slurm_has_taken_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step there fails at once, and the next one began seconds later, for as long as the job ran."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2", "s3", spares=1)
    job.turn(1.0, "s1", "s2", "s3")
    assert sorted(job.coordinator.places.homes().values()) == ["s1", "s2"]
    job.listed = []  # Slurm does not say
    job.turn(15.0, "s1", "s2")
    assert job.started == ["s1,s2,s3", "s3"]
    job.listed = ["s1", "s2"]
    assert job.turn(60.0, "s1", "s2") is None
    assert (job.started, job.coordinator.stopping) == (["s1,s2,s3", "s3"], None)


def test_an_elastic_job_goes_on_without_a_machine_that_slurm_has_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the launchers that are left need a while to end."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2", min_nodes=1, shrinks=True, host_timeout=30.0)
    job.turn(1.0, "s1", "s2")
    job.alive, job.listed = ("s1",), ["s1"]
    assert (job.turn(60.0, "s1"), job.coordinator.stopping) == (None, None)
    job.alive = ()
    job.turn(1.0, "s1")
    assert (job.events[-1], job.coordinator.stopping) == ("generation 2 on s1", None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 0), (signal.SIGTERM, 143)])
def test_a_user_stops_a_job_that_is_about_to_go_on_elsewhere(
    number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its processes have their grace at the time limit, for example: that may be minutes."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2")
    job.turn(0.5, "s1", "s2")
    job.coordinator.on_signal(number)
    (tmp_path / "run" / "order.json").write_text(json.dumps({"id": "stop-1", "command": "stop"}))
    job.coordinator.on_signal(signal.SIGUSR2)
    assert job.turn(0.5, "s1", "s2") == 0
    assert (job.result["phase"], job.result["reason"]) == ("stopped", "stopped by the user")
    other = tmp_path / "other"
    other.mkdir()
    job = PlayedAllocation(other, monkeypatch, "s1", "s2")
    job.coordinator.on_signal(number)
    assert job.turn(0.5, "s1", "s2") == code
    assert job.result is None


OVERDUE = certain_after(600.0)


class TimedAllocation(PlayedAllocation):
    """One of a job that may run for ten minutes."""

    def __init__(self, work: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        super().__init__(work, monkeypatch, "s1", "s2", max_duration=600.0, **settings)
        self.coordinator.generations.clock = lambda: 1e9 + self.now - self.began

    def ends(self, seconds: float) -> bool:
        """Let time pass; say whether the job ends, as failed for good."""
        if self.turn(seconds, "s1", "s2") is None:
            return False
        assert self.result["phase"] == "failed"
        return True


def test_a_job_ends_as_failed_once_it_has_run_for_as_long_as_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since its first generation: others, as of another size, change nothing. With the words of a supervisor."""
    job = TimedAllocation(tmp_path, monkeypatch)
    assert not job.ends(0.5)
    assert not job.ends(300.0)
    job.coordinator.begin()
    assert not job.ends(299.5)
    assert not job.ends(1.0)
    assert not job.ends(OVERDUE - 0.5)
    assert job.ends(0.5)
    policy, watched = replace(observed_jobs.POLICY, max_duration=600.0), observed_jobs.job(observed_jobs.node(0))
    assert decide(watched, policy, 1601.0, World(overdue=OVERDUE)) == GiveUp(job.result["reason"], None)


def test_a_clock_that_is_wrong_for_a_moment_does_not_end_the_time_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = TimedAllocation(tmp_path, monkeypatch)
    assert not job.ends(0.5)
    right = job.coordinator.generations.clock
    for clock in (lambda: 2e9, right, lambda: 2e9, right):
        job.coordinator.generations.clock = clock
        assert not job.ends(0.7 * OVERDUE)


def test_the_time_that_a_job_may_run_is_over_all_its_allocations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the time between these. `up` and `restart` begin to count again, with the next generation."""
    job = TimedAllocation(tmp_path, monkeypatch)
    assert not job.ends(0.5)
    job.coordinator.generations = Generations(str(tmp_path), "8")
    job.coordinator.places.at.clear()
    job.coordinator.generations.clock = lambda: 1e9 + 601.0
    assert not job.ends(0.5)
    assert job.ends(OVERDUE)
    other = Generations(str(tmp_path), "9")
    other.clock = job.coordinator.generations.clock
    other.note(fresh_budget=True)
    assert other.time_left(600.0) == float("inf")
    other.begin([0, 1])
    assert other.time_left(600.0) == 600.0


def test_a_job_does_not_go_on_elsewhere_for_the_time_that_it_would_wait_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time limit is `max_duration` where the spec has none: it is warned shortly before both."""
    for name, seconds, ends in (("early", 400.0, False), ("late", 480.0, True)):
        (tmp_path / name).mkdir()
        job = TimedAllocation(tmp_path / name, monkeypatch)
        assert not job.ends(seconds)
        job.coordinator.on_signal(signal.SIGUSR1)
        assert job.turn(0.5, "s1", "s2") == int(ends)
        said = "the time limit is near: "
        said += "`recovery.max_duration` (600 s) leaves no time for another allocation" if ends else "submitted again"
        assert job.events[-1].removeprefix("job failed: ").startswith(said)


def test_a_job_that_has_failed_is_not_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2")
    job.coordinator.stop("failed", "no such image")
    job.coordinator.stop("user", "stopped by the user")
    assert job.turn(0.5, "s1", "s2") == 1
    assert (job.result["phase"], job.result["reason"]) == ("failed", "no such image")


@pytest.mark.parametrize(
    ("requeue", "told", "preempts", "code"),
    [
        ("auto", False, True, 0),  # it has its grace, and Slurm would take it for ended
        ("auto", True, True, 143),  # Slurm itself requeues it
        ("chain", True, True, 0),  # Slurm does not
        ("chain", True, False, 143),  # somebody has cancelled it
        ("auto", False, False, 1),
    ],
)
def test_a_job_goes_on_that_slurm_preempts(
    requeue: str, *, told: bool, preempts: bool, code: int, preempted: PlayedAllocation
) -> None:
    job = preempted
    job.coordinator.settings["requeue"], job.preempts = requeue, preempts
    if told:
        job.coordinator.on_signal(signal.SIGTERM)
    first = job.turn(0.5, "s1", "s2")
    last = job.turn(LINGER, "s1", "s2") if first is None else first
    assert (last, (job.result or {}).get("phase")) == (code, "failed" if code == 1 else None)
    assert (first is None) == (code == 1)  # a cancelled job hears of it a moment later
    assert ("Slurm gives the nodes to another job: submitted again as job 8" in job.events) == (code == 0)


@pytest.fixture
def preempted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedAllocation:
    """A job that runs, whose node runners were told to end just now."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2")
    assert job.turn(0.5, "s1", "s2") is None
    job.leaving = ("s1", "s2")
    return job


def test_a_job_does_not_end_because_one_of_its_machines_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs there is told to end first: that is no failure of the job's, and the node moves to the spare."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2", "s3", spares=1)
    job.turn(0.5, "s1", "s2", "s3")
    coordinator, job.leaving = job.coordinator, ("s2",)
    said = {"who": "s2", "host": "s2", "slot": 0, "tick": 1, "node": 1, "turn": 1, "names": 0, "leaving": True}
    coordinator.hear({**said, "ended": 143}, ("127.0.0.1", 9), job.now)
    job.listed = ["s1", "s3"]
    assert (coordinator.judge(job.now), coordinator.judge(job.now + 60.0), coordinator.stopping) == (None, None, None)
    assert job.turn(LOST, "s1", "s3") is None
    assert coordinator.places.homes() == {0: "s1", 1: "s3"}


def test_processes_get_the_time_to_end_that_the_user_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also longer than the job's own grace."""
    job = PlayedAllocation(tmp_path, monkeypatch, "s1", "s2")
    job.alive = ("s1", "s2")
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(job.coordinator.datagrams, "send", lambda message, to: told.append(message))
    job.turn(1.0, "s1", "s2")
    assert (told[-1]["stop"], told[-1]["grace"]) == (False, SETTINGS["stop_grace"])
    (tmp_path / "run" / "order.json").write_text(json.dumps({"id": "stop-1", "command": "stop", "grace": 600.0}))
    job.coordinator.orders.read()
    assert job.turn(600.0, "s1", "s2") is None
    assert (told[-1]["stop"], told[-1]["grace"]) == (True, 600.0)
    assert job.turn(LINGER + 1.0, "s1", "s2") == 0


def test_where_all_nodes_are_fits_into_one_datagram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the largest job that `validate` lets pass, with the longest addresses."""
    hosts = [f"s{number}" for number in range(MOST_NODES)]
    job = PlayedAllocation(tmp_path, monkeypatch, *hosts, slots=[0] * MOST_NODES, min_nodes=MOST_NODES)
    monkeypatch.setattr(job.coordinator.datagrams, "send", lambda message, to: None)
    for host in hosts:
        job.hear(host, address="255.255.255.255")
    job.coordinator.place(job.now)
    hearing = Datagrams(job.coordinator.datagrams.token, ANSWER_KEYS)
    monkeypatch.undo()
    job.hear(hosts[-1], address="127.0.0.1", port=hearing.port)
    select.select([hearing.socket], [], [], 60.0)
    [(answer, _)] = hearing.receive()
    assert len(answer["names"]) == MOST_NODES
