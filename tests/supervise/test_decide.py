"""The supervisor's decisions, one case a line: what was observed, and what is done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.jobspec.deploy.model.control import Control, JobResult, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, ObservedProcess
from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
from jobctl.jobspec.plan.recovery import Failure, Recovery, Rule
from jobctl.jobspec.supervise.changes import failure_details
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import (
    Change,
    Continue,
    GiveUp,
    Leave,
    Rejoin,
    Repair,
    Restart,
    Succeed,
    Wait,
    World,
)
from jobctl.jobspec.supervise.failures import SETTLE, STACKS_WAIT, first_failure, judge
from tests.tools.failures import dead_launcher, failed

NOW = 1000.0
POLICY = Recovery(
    max_restarts=3,
    window=None,
    on_host_loss="wait",
    host_timeout=30.0,
    wait_timeout=None,
    max_duration=None,
    rules=(),
)


def failure(**changes: object) -> Failure:
    """A process of rank 1 that ended with code 7 at step 50 of generation 1."""
    said = {"log": "workerlog.0", "tail": ("boom",)}
    return failed(**{"at": 990.0, "host": "localhost", "exit_code": 7, "progress": 50, "ran": 20.0, **said, **changes})


def node(index: int, state: str = "running", **changes: object) -> ObservedNode:
    """A node of generation 1 whose launcher lives."""
    base = ObservedNode(index, "trainer", "localhost", "running", launcher=100 + index, generation=1, progress=50)
    return replace(base, state=state, **changes)  # type: ignore[arg-type]


def job(*nodes: ObservedNode, number: int = 1, command: str = "run", ledger: Ledger | None = None) -> Observed:
    """A job of these nodes, all of them members of generation `number`."""
    members = tuple(Member(n.node, n.node, ("trainer",), n.host, f"127.0.0.{n.node + 2}", 1) for n in nodes)
    meeting = RendezvousPoint("127.0.0.2", 20000, f"job-{number}")
    generation = Generation("job", "job-1", number, command, 0.0, members, meeting, None)  # type: ignore[arg-type]
    return Observed(Control(generation, ledger or Ledger(900.0)), nodes, supervised=True)


def test_all_run() -> None:
    assert decide(job(node(0), node(1)), POLICY, NOW) == Continue()


def test_some_have_ended_well() -> None:
    assert decide(job(node(0, "exited", exit_code=0, launcher=None), node(1)), POLICY, NOW) == Continue()


def test_all_have_ended_well() -> None:
    ended = [node(i, "exited", exit_code=0, launcher=None) for i in (0, 1)]
    assert decide(job(*ended), POLICY, NOW) == Succeed()


def test_ended_well_in_an_earlier_generation_is_not_success() -> None:
    ended = [node(i, "exited", exit_code=0) for i in (0, 1)]
    assert decide(job(*ended, number=2), POLICY, NOW) == Continue()


def test_a_process_fails() -> None:
    seen = job(node(0), node(1, "failed", failure=failure()))
    assert decide(seen, POLICY, NOW) == Restart("node 1: rank 1 exited with code 7", failure(), 0.0)


@pytest.mark.parametrize(("code", "words"), [(137, "was killed by SIGKILL"), (255, "exited with code 255")])
def test_a_killed_process_is_told_by_its_signal(code: int, words: str) -> None:
    seen = job(node(0), node(1, "failed", failure=failure(exit_code=code, kind="signal")))
    decision = decide(seen, POLICY, NOW)
    assert isinstance(decision, Restart)
    assert decision.cause == f"node 1: rank 1 {words}"


@pytest.mark.parametrize("kind", ["fenced", "hang", "host", "launcher", "lost", "process"])
def test_what_has_no_exit_code_is_told_by_its_reason(kind: str) -> None:
    found = failure(kind=kind, rank=None, exit_code=None, reason="it is gone")
    decision = decide(job(node(0), node(1, "failed", failure=found)), POLICY, NOW)
    assert decision == Restart("node 1: it is gone", found, 0.0)


def test_the_first_failure_is_the_cause() -> None:
    late = failure(node=0, rank=0, at=991.0, exit_code=1)
    seen = job(node(0, "failed", failure=late), node(1, "failed", failure=failure()))
    assert first_failure(seen, NOW) == failure()


def test_failures_settle_before_one_is_called_the_cause() -> None:
    fresh = failure(at=NOW - SETTLE / 2)
    assert decide(job(node(0), node(1, "failed", failure=fresh)), POLICY, NOW) == Continue()
    assert first_failure(job(node(0), node(1, "failed", failure=fresh)), NOW + SETTLE) == fresh


def test_a_failure_in_the_future_is_not_waited_for() -> None:
    """The clock of its host is ahead, or that of the supervisor was set back."""
    ahead = failure(at=NOW + 3600)
    assert first_failure(job(node(0), node(1, "failed", failure=ahead)), NOW) == ahead


def test_a_killed_launcher_is_the_cause_whatever_its_peers_say() -> None:
    killed = failure(kind="launcher", at=0.0, rank=None, exit_code=None)
    peer = failure(node=0, rank=0, at=989.0)
    seen = job(
        node(0, "failed", failure=peer),
        node(1, "failed", launcher=None, failure=killed, reason="its launcher was killed"),
    )
    assert decide(seen, POLICY, NOW) == Restart("node 1: its launcher was killed", replace(killed, at=NOW), 0.0)


def test_a_failure_of_an_earlier_generation_is_over() -> None:
    assert decide(job(node(0), node(1, "failed", failure=failure()), number=2), POLICY, NOW) == Continue()


def test_a_launcher_that_was_never_started() -> None:
    missing = ObservedNode(1, "trainer", "localhost", "pending")
    assert decide(job(node(0), missing), POLICY, NOW) == Repair("node 1 has no launcher")


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Observed(Control(), (), True), "the job is not up"),
        (job(node(0), command="stop", ledger=Ledger(1.0, result=JobResult("stopped", "x", 2.0))), "the job stopped"),
        (job(node(0), ledger=Ledger(1.0, result=JobResult("failed", "x", 2.0))), "the job failed"),
    ],
)
def test_nothing_to_supervise(seen: Observed, why: str) -> None:
    assert decide(seen, POLICY, NOW) == Leave(why)


STOPPED = job(node(0), node(1), command="stop", ledger=Ledger(1.0, result=JobResult("stopped", "x", 2.0)))


def test_a_host_that_does_not_know_that_the_job_is_over_is_told_before_the_supervisor_leaves() -> None:
    told = Repair("localhost has not received that the job stopped")
    assert decide(replace(STOPPED, outdated=("localhost",)), POLICY, NOW) == told
    gone = tuple(replace(n, launcher=None) for n in STOPPED.nodes)
    assert decide(replace(STOPPED, outdated=("localhost",), nodes=gone), POLICY, NOW) == Leave("the job stopped")


def test_a_silent_host_is_waited_for_until_its_lease_is_over() -> None:
    silent = replace(STOPPED, nodes=(node(0), node(1, "lost", host="away", reachable=False)))
    waits = Wait("away may not know that the job stopped", lasting=False)
    assert decide(silent, POLICY, NOW, World(waited=31.0)) == waits
    assert decide(silent, POLICY, NOW, World(waited=33.0)) == Leave("the job stopped")


def test_a_change_that_a_command_did_not_finish_is_finished() -> None:
    half = job(node(0, "exited"), node(1, "exited"), command="stop")
    assert decide(half, POLICY, NOW) == Change("a command stopped the job to change it, and did not finish")


def test_a_change_that_waited_for_hosts_is_made_while_all_is_well() -> None:
    world = World(change="all hosts that the change needs answer")
    assert decide(job(node(0), node(1)), POLICY, NOW, world) == Change("all hosts that the change needs answer")
    broken = job(node(0), node(1, "failed", failure=failure()))
    assert isinstance(decide(broken, POLICY, NOW, world), Restart)
    over = decide(job(node(0), node(1)), replace(POLICY, max_duration=60.0), 961.0, world)
    assert isinstance(over, GiveUp)


def test_max_duration() -> None:
    policy = replace(POLICY, max_duration=60.0)
    assert decide(job(node(0)), policy, 961.0) == GiveUp("ran longer than `recovery.max_duration` (60 s)", None)
    assert decide(job(node(0)), policy, 959.0) == Continue()


WORDS = "node 1: rank 1 exited with code 7"
NOT_STARTED, ENDED = failure(kind="start", rank=None, progress=None, reason="it ended"), "node 1: it ended"
NO_LEADER = replace(NOT_STARTED, tail=("etcd3.exceptions.ConnectionFailedError: etcd connection failed",))


@pytest.mark.parametrize(
    ("now", "earlier", "policy", "decision"),
    [
        # The budget: as many restarts as it says, then the end.
        (
            failure(generation=2, progress=60),
            [failure()],
            POLICY,
            Restart(WORDS, failure(generation=2, progress=60), 0.0),
        ),
        (
            failure(generation=2, progress=60),
            [failure()],
            replace(POLICY, max_restarts=1),
            GiveUp(
                f"{WORDS}; all 1 restarts of `recovery.max_restarts` are used up",
                failure(generation=2, progress=60),
            ),
        ),
        (
            failure(),
            [],
            replace(POLICY, max_restarts=0),
            GiveUp(f"{WORDS}; all 0 restarts of `recovery.max_restarts` are used up", failure()),
        ),
        # A window forgets.
        (
            failure(generation=2, progress=60),
            [failure(at=100.0)],
            replace(POLICY, max_restarts=1, window=600.0),
            Restart(WORDS, failure(generation=2, progress=60), 0.0),
        ),
        # A bug: the same rank, the same code, no further than last time.
        (
            failure(generation=2),
            [failure()],
            POLICY,
            GiveUp(f"{WORDS}, again, before any progress: a bug, not a fault", failure(generation=2)),
        ),
        (
            failure(generation=2, progress=None, ran=3.0),
            [failure(progress=None, ran=3.0)],
            POLICY,
            GiveUp(
                f"{WORDS}, again, before any progress: a bug, not a fault",
                failure(generation=2, progress=None, ran=3.0),
            ),
        ),
        # No bug: another rank, another code, or a long run of a script that counts no steps.
        (failure(generation=2), [failure(rank=0)], POLICY, Restart(WORDS, failure(generation=2), 1.0)),
        (failure(generation=2), [failure(exit_code=8)], POLICY, Restart(WORDS, failure(generation=2), 1.0)),
        (
            failure(generation=2, progress=None, ran=61.0),
            [failure(progress=None, ran=3.0)],
            POLICY,
            Restart(WORDS, failure(generation=2, progress=None, ran=61.0), 0.0),
        ),
        # Rules come first.
        (
            failure(),
            [],
            replace(POLICY, rules=(Rule(None, 7, "fail"),)),
            GiveUp(f"{WORDS}; a rule of `recovery.rules` says not to retry", failure()),
        ),
        (
            failure(),
            [],
            replace(POLICY, rules=(Rule("b.om", None, "fail"),)),
            GiveUp(f"{WORDS}; a rule of `recovery.rules` says not to retry", failure()),
        ),
        (
            failure(),
            [],
            replace(POLICY, rules=(Rule("nothing like it", 7, "fail"),)),
            Restart(WORDS, failure(), 0.0),
        ),
        (
            failure(generation=2),
            [failure()],
            replace(POLICY, rules=(Rule(None, 7, "restart"),)),
            Restart(WORDS, failure(generation=2), 1.0),
        ),
        # What cannot be started: only a rule has it tried again.
        (NOT_STARTED, [], POLICY, GiveUp("node 1: it ended; what cannot be started is not retried", NOT_STARTED)),
        (NOT_STARTED, [], replace(POLICY, rules=(Rule("boom", None, "restart"),)), Restart(ENDED, NOT_STARTED, 0.0)),
        (NO_LEADER, [], POLICY, Restart(ENDED, NO_LEADER, 0.0)),
    ],
)
def test_judge(now: Failure, earlier: list[Failure], policy: Recovery, decision: object) -> None:
    assert judge(now, earlier, policy, NOW) == decision


@pytest.mark.parametrize("code", [129, 130, 137, 143])
def test_what_is_killed_from_outside_is_no_bug(code: int) -> None:
    killed = failure(generation=2, kind="signal", exit_code=code)
    assert isinstance(judge(killed, [replace(killed, generation=1)], POLICY, NOW), Restart)


def test_a_crash_by_its_own_signal_can_be_a_bug() -> None:
    segfault = failure(generation=2, kind="signal", exit_code=139)
    assert isinstance(judge(segfault, [replace(segfault, generation=1)], POLICY, NOW), GiveUp)


@pytest.mark.parametrize(
    ("now", "before", "bug"),
    [
        ({"rank": 3, "alike": ((0, 2), (3, 2))}, {"rank": 0, "alike": ((0, 2), (3, 2))}, True),
        ({"rank": 3, "alike": ((3, 2),)}, {"rank": 0, "alike": ((0, 2), (3, 2))}, True),
        ({"rank": 3, "alike": ((0, 2), (3, 2))}, {"rank": 0, "alike": ((0, 2),)}, True),
        ({"rank": 3, "alike": ((3, 2),)}, {"rank": 0, "alike": ((0, 2),)}, False),
        ({"rank": 3, "alike": ((3, 2),)}, {"rank": 0, "alike": ((3, 5),)}, False),
        ({"rank": 3, "alike": ((3, 2),), "progress": 60}, {"rank": 3, "alike": ((3, 2),)}, False),
        # A rank that fails because another was killed fails alike each time.
        ({"rank": 0, "alike": ((0, 2),)}, {"rank": 1, "exit_code": 137, "alike": ((0, 2),)}, False),
    ],
)
def test_a_bug_fails_on_many_ranks_in_any_order(now: dict[str, Any], before: dict[str, Any], bug: bool) -> None:
    base: dict[str, Any] = {"exit_code": 2, "progress": 50}
    decision = judge(failure(generation=2, **{**base, **now}), [failure(**{**base, **before})], POLICY, NOW)
    assert isinstance(decision, GiveUp) == bug


def test_two_ranks_with_one_bug_may_take_turns_at_being_first() -> None:
    first, second, third = (failure(generation=g, rank=g % 2, alike=((g % 2, 7),)) for g in (1, 2, 3))
    assert isinstance(judge(second, [first], POLICY, NOW), Restart)
    assert isinstance(judge(third, [first, second], POLICY, NOW), GiveUp)
    further = replace(second, progress=60)
    assert isinstance(judge(replace(third, progress=70), [first, further], POLICY, NOW), Restart)


@pytest.mark.parametrize("kind", ["setup", "start"])
def test_what_cannot_even_start_is_not_retried(kind: str) -> None:
    assert isinstance(judge(failure(kind=kind, reason="no"), [], POLICY, NOW), GiveUp)


def test_without_progress_the_pauses_grow() -> None:
    policy = replace(POLICY, max_restarts=100)
    earlier: list[Failure] = []
    delays = []
    for generation in range(1, 9):
        now = failure(generation=generation, exit_code=137, kind="signal")
        decision = judge(now, earlier, policy, NOW)
        assert isinstance(decision, Restart)
        delays.append(decision.delay)
        earlier.append(now)
    assert delays == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


codes = st.sampled_from([1, 7, 137, 139])


@given(
    st.lists(st.tuples(st.integers(0, 3), codes, st.none() | st.integers(0, 5)), max_size=12),
    st.integers(0, 5),
)
def test_no_run_takes_more_restarts_than_its_budget(faults: list[tuple[int, int, int | None]], budget: int) -> None:
    policy = replace(POLICY, max_restarts=budget)
    earlier: list[Failure] = []
    for number, (rank, code, progress) in enumerate(faults, 1):
        kind = "signal" if code > 128 else "exit"
        now = failure(generation=number, rank=rank, exit_code=code, progress=progress, kind=kind, ran=1.0)
        decision = judge(now, earlier, policy, NOW)
        assert isinstance(decision, Restart | GiveUp)
        if isinstance(decision, GiveUp):
            break
        assert 0.0 <= decision.delay <= 30.0
        earlier.append(now)
    assert len(earlier) <= budget


def hung(*ranks: tuple[int, int | None, str | None]) -> Observed:
    """A job of one node per rank that was called hung; of each its step, and where it stood."""
    common = failure(kind="hang", rank=None, exit_code=None, reason="no progress for 30 s (hang_timeout)")
    nodes = [
        node(
            rank,
            "failed",
            failure=replace(common, node=rank),
            processes=(ObservedProcess(rank, 0, "failed", None, -9, None, step, where),),
        )
        for rank, step, where in ranks
    ]
    return job(*nodes)


@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        ([(0, 8, None), (1, 7, None), (2, 8, None)], "; rank 1 is at step 7, the others at 8"),
        ([(0, 9, None), (1, 7, None), (2, 8, None)], "; rank 1 is at step 7, the others at 8 and 9"),
        ([(0, 8, "f"), (1, 8, "f"), (2, 8, "g")], "; rank 2 is in g, the others in f"),
        ([(0, 8, "f"), (1, 8, "g")], ""),
        ([(0, 7, "f"), (1, 7, "f"), (2, 8, "f")], ""),
        ([(0, 8, "f"), (1, None, "f"), (2, None, "h"), (3, None, "g")], ""),
        ([(0, None, None)], ""),
    ],
)
def test_the_odd_rank_out_of_a_hang_is_named(ranks: list[tuple[int, int | None, str | None]], more: str) -> None:
    first = first_failure(hung(*ranks), NOW)
    assert first is not None
    assert first.reason == "no progress for 30 s (hang_timeout)" + more


def test_a_rank_that_has_ended_well_is_not_the_odd_one() -> None:
    done = node(1, "exited", processes=(ObservedProcess(1, 0, "exited", None, 0, None, 7, None),))
    first = first_failure(job(*hung((0, 8, None), (2, 8, None)).nodes, done), NOW)
    assert first is not None
    assert first.reason == "no progress for 30 s (hang_timeout)"


def test_a_hang_is_judged_once_all_nodes_have_said_where_they_stand() -> None:
    alone = hung((0, 8, "f")).nodes[0]
    alone = replace(alone, failure=replace(alone.failure, at=NOW - 1.0))  # type: ignore[arg-type]
    assert first_failure(job(alone, node(1)), NOW) is None
    assert first_failure(job(alone, node(1, stacks_written=True)), NOW) is not None
    assert first_failure(job(alone, node(1, role="server")), NOW) is not None
    assert first_failure(job(alone, node(1)), NOW - 1.0 + STACKS_WAIT) is not None


def test_servers_are_not_the_odd_ones() -> None:
    """Their ranks begin at 0 as well."""
    server = node(2, role="server", processes=(ObservedProcess(0, 0, "running", None, None, None, None, "h"),))
    first = first_failure(job(*hung((0, None, "f"), (1, None, "f")).nodes, server), NOW)
    assert first is not None
    assert first.reason == "no progress for 30 s (hang_timeout)"


def test_the_event_of_a_hang_says_where_each_process_stands() -> None:
    def at(rank: int, where: str) -> ObservedNode:
        process = ObservedProcess(rank, 0, "failed", None, None, None, 8, where, (where, "main"))
        return replace(hung((rank, 8, where)).nodes[0], processes=(process,))

    seen = job(*(at(rank, "f") for rank in range(20)), at(20, "g"))
    first = first_failure(seen, NOW)
    assert first is not None
    details = failure_details(first, seen)
    assert details["stacks"] == [
        {"who": ["node20 rank20"], "more": 0, "where": "g", "stack": ["g", "main"]},
        {"who": [f"node{n} rank{n}" for n in range(16)], "more": 4, "where": "f", "stack": ["f", "main"]},
    ]
    assert "stacks" not in failure_details(replace(first, kind="exit"), seen)


# Nodes that all others can do without for a while.

KILLED = dead_launcher(at=NOW, host="localhost", progress=50, reason="its launcher was killed")


def gone(index: int, **changes: object) -> ObservedNode:
    """A node whose launcher was killed."""
    killed = replace(KILLED, node=index, at=0.0, reason=None)
    return node(index, "failed", launcher=None, failure=killed, reason="its launcher was killed", **changes)


def test_a_node_joins_its_generation_again() -> None:
    alone = replace(KILLED, at=NOW, reason=None, alone=True)
    world = World(rejoining={0: 0.0, 1: 0.0})
    assert decide(job(node(0), gone(1)), POLICY, NOW, world) == Rejoin("node 1: its launcher was killed", alone, 0.0)
    assert isinstance(decide(job(node(0), gone(1)), POLICY, NOW), Restart)


@pytest.mark.parametrize(("ago", "delay"), [(1, 29.0), (12, 18.0), (31, 0.0)])
def test_a_node_that_others_have_to_give_up_first_is_away_so_long(ago: int, delay: float) -> None:
    """MindSpore's scheduler refuses a worker that it knows for half a minute."""
    ended = node(1, "failed", launcher=None, failure=failure(exit_code=1, at=NOW - ago))
    decision = decide(job(node(0), ended), POLICY, NOW, World(rejoining={1: 30.0}))
    assert isinstance(decision, Rejoin)
    assert decision.delay == delay


def test_joining_again_takes_from_the_budget() -> None:
    known = tuple(replace(KILLED, alone=True, at=NOW - 10 * n, progress=10 * n) for n in (3, 2, 1))
    decision = decide(
        job(node(0), gone(1), ledger=Ledger(900.0, failures=known)), POLICY, NOW, World(rejoining={1: 0.0})
    )
    assert isinstance(decision, GiveUp)
    assert "all 3 restarts of `recovery.max_restarts` are used up" in decision.reason


def test_what_follows_upon_another_nodes_failure_does_not_count() -> None:
    """Peers of a node that was killed fail in their collectives; only the first of them is a fault."""
    world = World(rejoining={0: 0.0, 1: 0.0})
    before = Ledger(900.0, failures=(replace(KILLED, node=0, alone=True, at=NOW - 5),))
    decision = decide(job(node(0), gone(1), ledger=before), POLICY, NOW, world)
    assert isinstance(decision, Rejoin)
    assert (decision.counts, decision.delay) == (False, 0.0)
    trained = decide(job(node(0), gone(1, progress=60), ledger=before), POLICY, NOW, world)
    assert isinstance(trained, Restart | Rejoin)
    assert trained.failure.progress == 60


def test_failures_that_a_generation_survived_are_all_kept() -> None:
    ledger = Ledger(900.0)
    for at in (1.0, 2.0):
        ledger = ledger.with_failure(replace(KILLED, at=at, alone=True))
    ledger = ledger.with_failure(replace(KILLED, at=3.0))
    assert [(f.at, f.alone) for f in ledger.with_failure(replace(KILLED, at=4.0)).failures] == [
        (1.0, True),
        (2.0, True),
        (4.0, False),
    ]


def test_a_launcher_that_is_about_to_end_is_waited_for() -> None:
    world = World(rejoining={1: 0.0}, ending=frozenset({1}))
    failed = failure(exit_code=1)
    assert decide(job(node(0), node(1, "failed", failure=failed)), POLICY, NOW, world) == Continue()
    ended = decide(job(node(0), node(1, "failed", launcher=None, failure=failed)), POLICY, NOW, world)
    assert isinstance(ended, Rejoin)
    fenced = node(1, "fenced", failure=failure(kind="fenced", rank=None, exit_code=None, reason="unheard"))
    assert isinstance(decide(job(node(0), fenced), POLICY, NOW, world), Restart)


def test_the_trainers_decide_whether_a_job_is_done() -> None:
    trainer = node(0, "exited", exit_code=0, launcher=None)
    server = node(1, role="server")
    broken = node(1, "failed", role="server", failure=failure())
    assert decide(job(trainer, server), POLICY, NOW) == Succeed()
    assert decide(job(trainer, broken), POLICY, NOW) == Succeed()
    assert decide(job(node(0), replace(server, state="exited", exit_code=0)), POLICY, NOW) == Continue()


def test_a_node_that_fails_by_itself_all_the_time_counts() -> None:
    """Another's failure long ago explains nothing: else it would be started again for ever."""
    world = World(rejoining={0: 0.0, 1: 0.0})
    before = Ledger(900.0, failures=(replace(KILLED, node=0, alone=True, at=NOW - 61),))
    decision = decide(job(node(0), gone(1), ledger=before), POLICY, NOW, world)
    assert isinstance(decision, Rejoin)
    assert decision.counts
