"""What `drill` waits for, on stories as hosts told them: a look a line, from the blow to the next step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable, FaultTarget
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import FULL, Observed, ObservedNode, ObservedProcess
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.operations.errors import JobFailed, Refused
from jobctl.jobspec.operations.lifecycle import drill
from jobctl.jobspec.operations.lifecycle.drill import Drill, Fault, Times, Witness, plan_drill, run_drill
from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
from jobctl.views.drill import show_drill


def node(index: int, pid: int, step: int | None, **changes: Any) -> ObservedNode:
    """A node with one process, in generation 1."""
    process = ObservedProcess(index, 0, "running", pid, None, "cpu:0")
    base = ObservedNode(index, "trainer", f"h{index}", "running", launcher=9, generation=1, progress=step)
    return replace(base, **{"container": "c", "started_at": 100.0, "processes": (process,), **changes})


def broken(index: int, **changes: Any) -> ObservedNode:
    """A node whose process has died."""
    process = ObservedProcess(index, 0, "failed", 71, 137, "cpu:0")
    return node(index, 71, 500, processes=(process,), **changes)


def look(*nodes: ObservedNode, number: int = 1) -> Observed:
    members = tuple(Member(n.node, n.node, ("trainer",), n.host, f"10.0.0.{n.node}", 1) for n in nodes)
    generation = Generation("job", "job-1", number, "run", 0.0, members, RendezvousPoint("10.0.0.0", 20000, "m"), None)
    return Observed(Control(generation, Ledger(90.0)), nodes, supervised=True)


BEFORE = look(node(0, 71, 500), node(1, 71, 500))

# Paddle with etcd: its launcher starts the processes of all nodes again, in the same generation of ours.
PROCESS_REGROUPS = [
    BEFORE,
    look(node(0, 71, 505), broken(1)),
    look(node(0, 71, 505), node(1, 71, 505)),  # the report of a moment before: these are the old processes
    look(node(0, 95, 505, process_restarts=1), broken(1)),
    look(node(0, 95, 505, process_restarts=1), node(1, 95, 505, process_restarts=1)),
    look(node(0, 95, 470, process_restarts=1), node(1, 95, 471, process_restarts=1)),
]
# The same, where the container was killed: its launcher, started again, joins the others.
CONTAINER_JOINS = [
    BEFORE,
    look(node(0, 71, 505), broken(1, state="failed", launcher=None)),
    look(node(0, 71, 505), node(1, 71, None, state="pending", processes=(), generation=0)),
    look(node(0, 95, 505, process_restarts=1), node(1, 71, None, started_at=160.0)),
    look(node(0, 95, 470, process_restarts=1), node(1, 71, 471, started_at=160.0)),
]
# Whatever begins a new generation: its processes start from nothing.
GENERATION = [
    BEFORE,
    look(node(0, 71, 505), broken(1, state="failed")),
    look(node(0, 71, 505), node(1, 71, 505), number=2),
    look(node(0, 81, None, generation=2), node(1, 81, None, generation=2), number=2),
    look(node(0, 81, 471, generation=2), node(1, 81, None, generation=2), number=2),
]


FAILURE = ({"event": "failure"},)


class Told:
    """A deployer that tells a story, whose last look it repeats a few times. `signs`: events after the blow, as they are kept."""

    def __init__(self, story: list[Observed], directory: Path, signs: Sequence[Mapping[str, Any]] = FAILURE) -> None:
        self.story, self.looks, self.struck, self.signs = story, 0, False, signs
        self.job = SimpleNamespace(name="job", events=directory / "events.jsonl")
        self.plan, self.interval = None, 0.0

    def observe(self) -> Observed:
        assert self.looks < len(self.story) + 5, "it waits for what has happened"
        seen = self.story[min(self.looks, len(self.story) - 1)]
        self.looks += 1
        if len(seen.unreachable) == len(self.places()):
            raise AllUnreachable({host: HostError(host, "silent", "it is silent") for host in self.places()}, seen)
        return seen

    def inject_fault(self, node: int, what: str) -> None:
        self.struck = True
        for sign in self.signs:
            about = {name: value for name, value in sign.items() if name != "event"}
            events.record(self.job.events, drill.time.time(), sign["event"], f"about node {node}", **about)

    def events(self) -> events.EventFile:
        return events.EventFile(self.job.events)

    def places(self) -> tuple[str, ...]:
        return ("h0", "h1")


def drilled(told: Told, monkeypatch: pytest.MonkeyPatch) -> Drill:
    """Kill the process of node 1, and return what came of it."""
    monkeypatch.setattr(drill, "pause", lambda seconds: None)
    return run_drill(told, plan_drill(told, "process", "1"), 600)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("story", "after"),
    [(PROCESS_REGROUPS, 471), (CONTAINER_JOINS, 471), (GENERATION, 471)],
    ids=["process", "container", "generation"],
)
def test_it_waits_for_the_first_step_after_the_blow(
    story: list[Observed], after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(story, tmp_path)
    if story is GENERATION:
        events.record(told.job.events, 0.0, "up", "up")
        monkeypatch.setattr(drill, "TOLD", 0.0)
    done = drilled(told, monkeypatch)
    assert told.struck
    assert told.looks == len(story)  # neither sooner nor later
    assert (done.before, done.after, done.generation) == (500, after, 1)
    assert done.seconds.detected is not None


def test_a_job_that_ends_before_the_blow_harms_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = [node(i, 71, 500, state="exited", exit_code=0, launcher=None) for i in (0, 1)]
    told = Told([BEFORE, look(*done)], tmp_path)
    with pytest.raises(Refused, match="ended well before the drill could harm it"):
        drilled(told, monkeypatch)


SILENT = replace(
    look(*(node(i, 71, 500, state="lost", reachable=False) for i in (0, 1))),
    unreachable=dict.fromkeys(("h0", "h1"), "it is silent"),
)


def test_a_cut_of_a_moment_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told([*GENERATION[:2], SILENT, *GENERATION[2:]], tmp_path)
    monkeypatch.setattr(drill, "TOLD", 0.0)
    assert (drilled(told, monkeypatch).after, told.looks) == (471, len(told.story))


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (SILENT, "whether job `job` has recovered is not known: h0, h1 cannot be reached"),
        (replace(GENERATION[1], obstacles={"h1": FULL}), f"has not recovered in time: node 1: failed; h1: {FULL}"),
    ],
)
def test_it_says_what_it_saw_last_when_its_time_is_over(
    last: Observed, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 0.0, *[1.0] * 3, *[601.0] * 9])
    monkeypatch.setattr(drill, "time", SimpleNamespace(monotonic=lambda: next(clock), time=time.time))
    with pytest.raises(JobFailed) as failed:
        drilled(Told([BEFORE, last], tmp_path), monkeypatch)
    assert words in str(failed.value)


def test_nothing_is_broken_where_nobody_can_mend_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes no new generation."""
    told = Told([replace(BEFORE, obstacles={"h1": FULL})], tmp_path)
    with pytest.raises(Refused, match=f"job `job` could not recover from a drill: h1: {FULL}"):
        drilled(told, monkeypatch)
    assert not told.struck


def test_a_full_disk_of_a_host_without_a_node_stops_no_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told([replace(seen, obstacles={"s0": FULL}) for seen in GENERATION], tmp_path)
    monkeypatch.setattr(drill, "TOLD", 0.0)
    assert drilled(told, monkeypatch).after == 471


def test_it_waits_for_a_process_to_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has just begun runs, and has reported no process yet."""
    told = Told([look(node(0, 71, 500), node(1, 71, 500, processes=())), *GENERATION], tmp_path)
    monkeypatch.setattr(drill, "pause", lambda seconds: None)
    fault = plan_drill(told, "process", "1")  # type: ignore[arg-type]
    assert (fault.observed, told.looks) == (BEFORE, 2)


# What is kept of a fault in an allocation of Slurm's: launchers do not name themselves, the coordinator does.
BY_LAUNCHERS = (*FAILURE, {"event": "generation", "by": "launchers"})
BY_COORDINATOR = ({"event": "host-lost", "by": "allocation"}, *BY_LAUNCHERS)


@pytest.mark.parametrize(
    ("supervised", "signs", "witness"),
    [
        (True, FAILURE, "supervisor"),
        (None, BY_LAUNCHERS, "launchers"),
        (None, BY_COORDINATOR, "allocation"),
        (None, [{"event": "waiting", "by": "allocation"}], "allocation"),
        (None, [{"event": "process-restarted"}], "launchers"),
        (None, [{"event": "allocation", "by": "allocation"}, {"event": "host-lost"}], None),
    ],
)
def test_it_tells_who_saw_the_fault(
    supervised: bool | None,
    signs: Sequence[Mapping[str, Any]],
    witness: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told([replace(one, supervised=supervised) for one in GENERATION], tmp_path, signs)
    monkeypatch.setattr(drill, "TOLD", 0.0)
    done = drilled(told, monkeypatch)
    assert (done.detected_by, done.seconds.detected is None) == (witness, witness is None)


@pytest.mark.parametrize(
    ("witness", "words"),
    [
        ("supervisor", "the supervisor saw it"),
        ("launchers", "the launchers saw it"),
        ("allocation", "the coordinator of the allocation saw it"),
    ],
)
def test_it_says_who_saw_the_fault(witness: Witness, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = Drill("process", 1, "h1", 1, None, None, Times(0.25, 0.5, 1.0), None, witness)
    show_drill(Fault("process", 1, "h1", BEFORE), done)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["detected", "0.25", "s", *words.split()] in said


@pytest.mark.parametrize(
    ("victim", "container", "words"),
    [
        ("process", "c", "kills a process of node 1 on h1"),
        ("container", "c", "kills the container of node 1 on h1"),
        ("container", None, "kills the launcher of node 1 on h1"),  # on this machine, and in Slurm
        ("host", None, "plays that h1 with node 1 is lost"),
    ],
)
def test_it_says_what_it_breaks(victim: FaultTarget, container: str | None, words: str) -> None:
    fault = Fault(victim, 1, "h1", look(node(0, 71, 500), node(1, 71, 500, container=container)))
    assert fault.words == (words, words.replace("kills", "killed").replace("plays", "played"))
