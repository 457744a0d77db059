"""Machines that answer and cannot start their nodes: where these go, how often they are tried again, and when the job fails."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.allocation.node_runner import EXCLUDED
from jobctl.jobspec.allocation.places import Places, RunnerState
from jobctl.jobspec.allocation.refusals import FIRST_PAUSE, Refusals
from jobctl.jobspec.allocation.size import JobSize
from jobctl.jobspec.launcher.system.processes import EXIT_MOVES

HOSTS = ("s1", "s2", "s3", "s4")
SETTINGS = {"min_nodes": 2, "spares": 0, "shrinks": True, "host_timeout": 6.0}
FULL = "Error: no space left on device"
NO_DEVICE = "Error: stat /dev/nope: no such file or directory"


class PlayedAllocation:
    """An allocation of machines on which a job of two nodes begins; `broken` says why a machine cannot start one."""

    def __init__(self, *hosts: str, tries: int = 3, slots: tuple[int, ...] = (0, 0), **settings: Any) -> None:
        self.now, self.broken = 0.0, dict[str, str]()
        self.excluded: tuple[str, ...] = ()  # machines that a rule has a node leave once it has failed there
        self.places = Places(hosts, slots)
        self.events: list[str] = []
        self.hear()
        self.places.deal(hosts)
        self.size = JobSize(self.places, {**SETTINGS, **settings})
        self.refusals = Refusals(self.size, self, tries)  # type: ignore[arg-type]

    def event(self, event: str, message: str, **fields: Any) -> None:
        assert event == "host-failed"
        self.events.append(message)

    def hear(self) -> None:
        """Every runner has tried to start the node that it has, and says how that went."""
        for runner in self.places.runners.values():
            node = self.places.node_of(runner)
            self.say(runner, node)

    def say(self, runner: RunnerState, node: int | None) -> None:
        runner.heard, runner.sender, words = self.now, ("10.0.0.1", 1), self.broken.get(runner.host)
        turn = self.places.turns[node] if node is not None else 0
        refused = {"ended": 125, "refused": words} if words else {"ended": None, "refused": None}
        runner.said = {"node": node, "turn": turn, "begun": not words, "alive": not words, **refused}
        if runner.host in self.excluded:
            ended = {"ended": EXIT_MOVES, "refused": EXCLUDED, "excluded": True}
            runner.said.update(ended, begun=False, alive=False)
        if node is None:
            runner.said.update(ended=None, refused=None, excluded=False, begun=False, alive=False)

    def goes_on(self, seconds: float = 0.0) -> bool:
        """Let time pass; say whether the job goes on."""
        self.now += seconds
        self.hear()
        return not self.refusals.look(self.now)

    @property
    def homes(self) -> list[str]:
        return [runner.host for _, runner in sorted(self.places.at.items())]


def test_a_node_that_cannot_start_moves_to_a_free_machine() -> None:
    job = PlayedAllocation("s1", "s2", "s3")
    job.broken = {"s2": FULL}
    assert job.goes_on()
    assert job.homes == ["s1", "s3"]
    assert job.events == [f"s2 cannot start node 1: {FULL}; the node moves to s3"]
    assert job.goes_on(1.0)
    assert (job.homes, job.places.codes(), len(job.events)) == (["s1", "s3"], {}, 1)
    # The machine is no spare any more: a node that is lost does not go there.
    assert job.places.spares(job.now) == [{"host": "s2", "state": "cold"}]
    assert job.places.free(job.now, 0) == []


def test_a_node_without_another_machine_is_tried_again_after_pauses_that_grow() -> None:
    job = PlayedAllocation("s1", "s2")
    job.broken = {"s2": FULL}
    assert job.goes_on()
    assert job.events == [f"s2 cannot start node 1: {FULL}; no other machine is free, so it is tried again in 5 s"]
    assert job.goes_on(FIRST_PAUSE - 0.1)
    assert job.places.turns[1] == 1
    assert job.goes_on(0.1)
    assert job.places.turns[1] == 2
    assert job.goes_on(0.1)
    assert job.events[-1].endswith("it is tried again in 10 s")
    assert job.goes_on(10.0)
    job.broken = {}
    assert job.goes_on(0.1)
    assert (job.places.turns[1], job.homes, job.places.refused(job.now)) == (3, ["s1", "s2"], {})
    # It has begun: should it be refused later, it has all its tries before it again.
    job.broken = {"s2": FULL}
    assert job.goes_on()
    assert job.events[-1].endswith("tried again in 5 s")


def test_a_job_fails_once_its_restarts_are_used_up() -> None:
    job = PlayedAllocation("s1", "s2", tries=2)
    job.broken = {"s2": FULL}
    while job.goes_on(1.0):
        assert job.now < 60.0
    assert job.refusals.problem == (f"s2 cannot start node 1: {FULL}; it was tried 3 times (`recovery.max_restarts`)")
    assert job.places.turns[1] == 3


def test_a_job_fails_at_once_where_no_machine_can_start_it_and_another_try_says_the_same() -> None:
    job = PlayedAllocation("s1", "s2", "s3")
    job.broken = dict.fromkeys(HOSTS, NO_DEVICE)
    assert job.goes_on()  # one of the nodes tries the spare
    assert not job.goes_on(1.0)
    assert job.refusals.problem is not None
    assert job.refusals.problem.endswith(f"{NO_DEVICE}; nor can any other machine of the allocation")
    # What may pass is tried again, though all machines say it.
    job = PlayedAllocation("s1", "s2")
    job.broken = dict.fromkeys(HOSTS, FULL)
    assert job.goes_on()
    assert job.goes_on(1.0)


def test_of_machines_that_have_all_refused_the_one_is_tried_that_did_so_longest_ago() -> None:
    job = PlayedAllocation("s1", "s2", "s3", "s4", tries=9)
    job.broken = {"s2": FULL, "s3": FULL, "s4": FULL}
    homes = []
    while len(homes) < 6:
        before = job.places.turns[1]
        homes.append(job.homes[1])
        while job.places.turns[1] == before:
            assert job.goes_on(1.0)
    assert homes == ["s2", "s3", "s4", "s2", "s3", "s4"]


def test_an_elastic_job_goes_on_without_a_machine_that_cannot_start_its_node_and_stays_away_from_it() -> None:
    job = PlayedAllocation("s1", "s2", "s3", slots=(0, 0, 0))
    job.broken = {"s2": FULL}
    assert job.goes_on()
    assert job.events == [f"s2 cannot start node 1: {FULL}"]
    wanted = job.size.change(job.now)
    assert wanted is not None
    assert job.places.why_changed(wanted, job.now) == ("host-failed", "s2 cannot start its node")
    job.places.resize(wanted)
    for _ in range(3):
        assert job.goes_on(30.0)
        assert (job.homes, job.size.change(job.now)) == (["s1", "s3"], None)


def test_an_elastic_job_that_would_be_too_small_tries_again() -> None:
    for settings, slots in (({"min_nodes": 3}, (0, 0, 0, 0)), ({"shrinks": False}, (0, 0, 0))):
        job = PlayedAllocation(*HOSTS[: len(slots)], slots=slots, **settings)
        job.broken = dict.fromkeys(("s2", "s3") if len(slots) == 4 else ("s2",), FULL)
        assert job.goes_on()
        assert job.size.change(job.now) is None
        assert job.events[-1].endswith("tried again in 5 s")


def test_what_a_machine_has_refused_is_no_end_of_the_node_and_of_this_turn_alone() -> None:
    job = PlayedAllocation("s1", "s2")
    job.broken = {"s2": FULL}
    job.hear()
    assert (job.places.codes(), job.places.refused(job.now), job.places.running(job.now)) == ({}, {1: FULL}, [0])
    assert job.places.told(job.now)["1"] == {
        "host": "s2", "address": "10.0.0.1", "heard": True, "runs": False, "refused": FULL, "ended": None, "turn": 1,
    }  # fmt: skip
    job.places.resize(dict(job.places.at))
    assert job.places.refused(job.now) == {}


def test_a_node_that_a_rule_has_leave_its_machine_moves_to_a_free_one() -> None:
    job = PlayedAllocation("s1", "s2", "s3")
    job.excluded = ("s2",)
    assert job.goes_on()
    assert (job.homes, job.events) == (["s1", "s3"], ["a rule excludes s2: node 1 moves to s3"])
    assert job.goes_on(30.0)
    assert job.places.spares(job.now) == [{"host": "s2", "state": "cold"}]
    assert (job.places.codes(), job.refusals.count) == ({}, {})


def test_a_node_that_a_rule_has_leave_its_machine_begins_again_there_where_no_other_one_is_free() -> None:
    """At once, and as often as the launchers' restarts allow: the machine can start it."""
    job = PlayedAllocation("s1", "s2", tries=0)
    job.excluded = ("s2",)
    for turn in (2, 3):
        assert job.goes_on()
        assert (job.homes, job.places.turns[1]) == (["s1", "s2"], turn)
        assert job.events[-1] == "a rule excludes s2, and no other machine is free: node 1 begins again there"
    job.excluded = ()
    assert job.goes_on(1.0)
    assert (job.places.at[1].refused, job.places.at[1].excluded) == (None, False)


def test_an_elastic_job_goes_on_without_a_machine_that_a_rule_has_its_node_leave() -> None:
    job = PlayedAllocation("s1", "s2", "s3", slots=(0, 0, 0))
    job.excluded = ("s2",)
    assert job.goes_on()
    assert (job.events, job.places.told(job.now)["1"]["refused"]) == (["a rule excludes s2"], None)
    wanted = job.size.change(job.now)
    assert wanted is not None
    assert job.places.why_changed(wanted, job.now) == ("host-failed", "a rule excludes s2")
    job.places.resize(wanted)
    for _ in range(3):
        assert job.goes_on(30.0)
        assert (job.homes, job.size.change(job.now)) == (["s1", "s3"], None)
