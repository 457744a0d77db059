"""What is decided when hosts are lost, come back, or are broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import Control, JobResult, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.plan.generation import Member
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import Continue, GiveUp, Grow, Repair, Restart, Wait, World

from .jobs_on_hosts import GENERATION, HOMES, HOST_FAILURE, NOW, POLICY, failed, job, lost, node, world


def test_a_spare_without_a_launcher_gets_one_once_all_is_well() -> None:
    cold = world(cold_spares=("s1", "s2"))
    every = (node(0), node(1), node(2))
    assert decide(job(*every), POLICY, NOW, cold) == Repair("spare s1, s2 has no launcher", ("s1", "s2"))
    assert decide(job(*every), POLICY, NOW, replace(cold, settled=False)) == Continue()
    assert isinstance(decide(job(node(0), lost(1), node(2)), POLICY, NOW, cold), Wait)
    over = Ledger(900.0, result=JobResult("failed", "", NOW))
    assert not isinstance(decide(job(*every, ledger=over), POLICY, NOW, cold), Repair)


def test_a_lost_node_moves_to_a_spare() -> None:
    decision = decide(
        job(node(0), lost(1), node(2)), POLICY, NOW, world(cleared=frozenset({1}), free_hosts=("s1", "s2"))
    )
    assert decision == Restart("node 1: h1 is lost", HOST_FAILURE, 0.0, {1: "s1"})


def test_not_before_it_is_certain_that_it_cannot_run() -> None:
    decision = decide(job(node(0), lost(1), node(2)), POLICY, NOW, world(free_hosts=("s1",)))
    words = "node 1: h1 is not heard; moves once it cannot run there any more (30 s)"
    assert decision == Wait(words, lasting=False, runs=True)


def test_nothing_moves_when_half_is_gone() -> None:
    decision = decide(job(node(0), lost(1), lost(2)), POLICY, NOW, world(free_hosts=("s1", "s2"), too_few=True))
    assert isinstance(decision, Wait)
    assert "nobody can tell who is cut off" in decision.reason


def test_what_fails_meanwhile_waits_too() -> None:
    """Its peers fail when a host goes: they begin again together with its node, wherever that will be."""
    broken = node(0, state="failed", failure=failed(node=0, host="h0"))
    assert isinstance(decide(job(broken, lost(1), node(2)), POLICY, NOW, world(free_hosts=("s1",))), Wait)


@pytest.mark.parametrize("how", ["replace", "shrink"])
def test_without_a_spare_the_job_shrinks_if_it_can(how: Any) -> None:
    policy, around = replace(POLICY, on_host_loss=how), world(cleared=frozenset({1}), least=2)
    assert decide(job(node(0), lost(1), node(2)), policy, NOW, around) == Restart(
        "node 1: h1 is lost", HOST_FAILURE, 0.0, {}, frozenset({1})
    )
    assert decide(job(node(0), lost(1), node(2)), policy, NOW, replace(around, least=3)) == Wait(
        "node 1: h1 is not heard; there is no other host for it"
    )


def test_of_two_one_moves_and_one_is_left_out() -> None:
    around = world(cleared=frozenset({1, 2}), free_hosts=("s1",), least=2)
    decision = decide(job(node(0), lost(1), lost(2)), POLICY, NOW, around)
    assert isinstance(decision, Restart)
    assert (decision.moves, decision.without) == ({1: "s1"}, {2})


def test_it_waits_where_it_is_to_wait_and_not_for_ever() -> None:
    policy = replace(POLICY, on_host_loss="wait", wait_timeout=60.0)
    around = world(cleared=frozenset({1}), free_hosts=("s1",), least=1)
    assert isinstance(decide(job(node(0), lost(1), node(2)), policy, NOW, around), Wait)
    late = decide(job(node(0), lost(1), node(2)), policy, NOW, replace(around, waited=61.0))
    assert late == GiveUp(
        "node 1: h1 is not heard; waited for longer than `recovery.wait_timeout` (60 s)",
        None,
    )


def test_a_job_that_goes_on_does_not_end_because_its_supervisor_hears_a_host_no_more() -> None:
    """Others hear that host: its node can run, and does as long as theirs do. Then nobody waits for it."""
    policy, around = replace(POLICY, wait_timeout=60.0), world(waited=61.0)
    for seen in (around, replace(around, too_few=True)):
        decision = decide(job(node(0), lost(1), node(2)), policy, NOW, seen)
        assert isinstance(decision, Wait)
        assert decision.runs
        broken = node(2, state="failed", failure=failed(node=2, host="h2"))
        for other in (broken, node(2, state="starting"), node(2, generation=3)):
            assert isinstance(decide(job(node(0), lost(1), other), policy, NOW, seen), GiveUp)
        assert isinstance(decide(job(lost(0), lost(1), lost(2)), policy, NOW, seen), Wait)
    assert isinstance(
        decide(job(node(0), lost(1), node(2)), policy, NOW, replace(around, cleared=frozenset({1}))), GiveUp
    )
    stopped = job(node(0, state="exited"), lost(1), node(2, state="exited"))
    paused = replace(stopped, control=replace(stopped.control, generation=GENERATION.told("stop", 5.0)))
    assert isinstance(decide(paused, policy, NOW, around), GiveUp)


def test_a_short_wait_keeps_no_node_from_a_spare() -> None:
    """It moves once its lease is over, which is later than that."""
    policy, broken = replace(POLICY, wait_timeout=10.0), node(0, state="failed", failure=failed(node=0, host="h0"))
    seen, spare = job(broken, lost(1), node(2)), world(free_hosts=("s1",), waited=29.0)
    assert isinstance(decide(seen, policy, NOW, spare), Wait)
    assert isinstance(decide(seen, policy, NOW, replace(spare, cleared=frozenset({1}))), Restart)
    assert isinstance(decide(seen, policy, NOW, replace(spare, waited=33.0)), GiveUp)
    # It was tried on s1, slowly and in vain: hosts that are not fit come last.
    late = replace(spare, cleared=frozenset({1}), free_hosts=("s2", "s1"), waited=99.0)
    decision = decide(seen, policy, NOW, replace(late, unfit=frozenset({"s1"})))
    assert isinstance(decision, Restart)
    assert decision.moves == {1: "s2"}
    unfit = replace(late, free_hosts=("s1",), unfit=frozenset({"s1"}))
    assert isinstance(decide(seen, policy, NOW, unfit), GiveUp)
    assert isinstance(decide(seen, policy, NOW, replace(spare, free_hosts=())), GiveUp)


def test_it_fails_where_it_is_to_fail() -> None:
    policy = replace(POLICY, on_host_loss="fail")
    decision = decide(job(node(0), lost(1), node(2)), policy, NOW, world(cleared=frozenset({1}), free_hosts=("s1",)))
    assert decision == GiveUp("node 1: h1 is not heard; `recovery.on_host_loss` is `fail`", HOST_FAILURE)


def test_a_launcher_that_belongs_elsewhere_is_removed_while_a_node_is_waited_for() -> None:
    """With etcd it may hold the lease of the lost node: then the node could never begin anywhere."""
    stray = node(1, host="s1", generation=3)
    seen = job(node(0), lost(1), node(2), strays=(stray,))
    repair = Repair("node 1 on s1 belongs elsewhere now", runs=True)
    assert decide(seen, POLICY, NOW, world(free_hosts=("s2",))) == repair
    assert isinstance(decide(seen, POLICY, NOW, world(cleared=frozenset({1}), free_hosts=("s2",))), Restart)


def test_a_lost_host_counts_as_a_failure() -> None:
    ledger = Ledger(900.0, failures=tuple(failed(generation=n) for n in (1, 2, 3)))
    decision = decide(
        job(node(0), lost(1), node(2), ledger=ledger), POLICY, NOW, world(cleared=frozenset({1}), free_hosts=("s1",))
    )
    assert isinstance(decision, GiveUp)


def test_it_goes_where_up_has_planned_it_already() -> None:
    around = world(cleared=frozenset({1}), free_hosts=("s1", "s2"), planned={**HOMES, 1: "s2"})
    decision = decide(job(node(0), lost(1), node(2)), POLICY, NOW, around)
    assert isinstance(decision, Restart)
    assert decision.moves == {1: "s2"}


def test_a_node_that_is_seen_elsewhere_is_lost_all_the_same() -> None:
    """Whoever moved it was killed before the next generation began."""
    decision = decide(job(node(0), node(1, host="s1"), node(2)), POLICY, NOW, world(free_hosts=("s1",)))
    assert isinstance(decision, Wait)


def test_no_node_moves_to_a_host_that_was_excluded() -> None:
    spares = world(cleared=frozenset({1}), free_hosts=("s1", "s2"))
    ledger = Ledger(900.0, excluded=("s1",))
    assert decide(job(node(0), lost(1), node(2), ledger=ledger), POLICY, NOW, spares).moves == {1: "s2"}


def test_the_job_grows_when_there_are_hosts_again() -> None:
    here = replace(GENERATION, members=GENERATION.members[:2])
    observed = replace(job(node(0), node(1)), control=Control(here, Ledger(900.0)))
    assert decide(observed, POLICY, NOW, world(least=2)) == Grow("there is a host for node 2 again", frozenset({"h2"}))
    assert decide(observed, POLICY, NOW, world(least=2, settled=False)) == Continue()
    gone = replace(observed, unreachable={"h2": "not heard"})
    assert decide(gone, POLICY, NOW, world(least=2)) == Continue()
    shunned = replace(observed, control=Control(here, Ledger(900.0, excluded=("h2",))))
    assert decide(shunned, POLICY, NOW, world(least=2)) == Continue()


def test_what_is_stale_is_removed_and_what_was_missed_handed_over() -> None:
    stray = ObservedNode(1, "trainer", "old", "fenced", container="c")
    assert decide(job(node(0), node(1), node(2), strays=(stray,)), POLICY, NOW, world()) == Repair(
        "node 1 on old belongs elsewhere now"
    )
    assert decide(job(node(0), node(1), node(2), outdated=("h2",)), POLICY, NOW, world()) == Repair(
        "h2 missed a generation"
    )


def test_a_node_that_ended_just_before_the_next_generation_is_started_for_it() -> None:
    """Its launcher has gone with it: the others would wait for ever."""
    ended = node(1, state="exited", exit_code=0, generation=3, launcher=None)
    assert decide(job(node(0), ended, node(2)), POLICY, NOW, world()) == Repair("node 1 has no launcher")
    assert decide(job(node(0), replace(ended, generation=4), node(2)), POLICY, NOW, world()) == Continue()


def failing(**how: Any) -> Observed:
    failure = failed(**how)
    return job(node(0), node(1, state="failed", failure=failure), node(2))


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:63:00): 79, pid=1, GPU has fallen off the bus.",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "torch.distributed.DistBackendError: NCCL error: ncclSystemError: System call failed",
    ],
)
def test_a_broken_host_is_left(line: str) -> None:
    decision = decide(failing(tail=(line,), kind="exit", exit_code=1), POLICY, NOW, world(free_hosts=("s1",)))
    assert isinstance(decision, Restart)
    assert (decision.moves, decision.exclude) == ({1: "s1"}, {"h1"})


def test_all_nodes_of_a_broken_host_leave_it() -> None:
    policy = replace(POLICY, rules=(Rule(None, 9, "exclude_host"),))
    members = tuple(replace(one, host="h1") if one.node == 2 else one for one in GENERATION.members)
    broken = failing(kind="exit", exit_code=9)
    shared = replace(
        broken,
        control=Control(replace(GENERATION, members=members), broken.control.ledger),
        nodes=tuple(replace(one, host="h1") if one.node == 2 else one for one in broken.nodes),
    )
    decision = decide(shared, policy, NOW, world(free_hosts=("s1", "s2")))
    assert isinstance(decision, Restart)
    assert (decision.moves, decision.exclude) == ({1: "s1", 2: "s2"}, {"h1"})
    one_spare = decide(shared, policy, NOW, world(free_hosts=("s1",)))
    assert isinstance(one_spare, Restart)
    assert (one_spare.moves, one_spare.exclude) == ({1: "s1"}, {"h1"})


def test_where_there_is_no_other_host_it_stays() -> None:
    policy = replace(POLICY, rules=(Rule(None, 9, "exclude_host"),))
    decision = decide(failing(kind="exit", exit_code=9), policy, NOW, world())
    assert isinstance(decision, Restart)
    assert (decision.moves, decision.exclude) == ({}, frozenset())


def test_an_address_that_looks_like_a_fault_is_none() -> None:
    decision = decide(failing(tail=("NVRM: Xid (PCI:0000:79:00): 13, pid=1",)), POLICY, NOW, world(free_hosts=("s1",)))
    assert isinstance(decision, Restart)
    assert decision.exclude == frozenset()


@pytest.mark.parametrize("line", ["ModuleNotFoundError: No module named 'x'", "[rank3]: SyntaxError: invalid syntax"])
def test_code_that_cannot_be_loaded_is_not_retried(line: str) -> None:
    decision = decide(failing(tail=(line,), kind="exit", exit_code=1), POLICY, NOW, world())
    assert isinstance(decision, GiveUp)
    assert decision.reason == "node 1: rank 1 exited with code 1; its code cannot be loaded, which no retry fixes"


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device: '/c/7.new'",
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 23456, "
            "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
        "OSError: [Errno 98] Address already in use",
        "OSError: [Errno 5] Input/output error: '/shared/checkpoints/step-12'",
        "OSError: [Errno 116] Stale file handle",
        "RuntimeError: [enforce fail at inline_container.cc:603] . fwrite failed: Remote I/O error",
        "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/fuse'",
        "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/c/7'",
        "cp: cannot stat '/mnt/my data/7': Transport endpoint is not connected",
    ],
)
def test_storage_that_fails_is_no_bug_nor_is_a_port_that_somebody_took(line: str) -> None:
    how: Any = {"exit_code": 1, "kind": "exit", "tail": (line,)}
    observed = replace(
        failing(**how), control=Control(GENERATION, Ledger(900.0, failures=(failed(generation=3, **how),)))
    )
    assert isinstance(decide(observed, POLICY, NOW, world()), Restart)


def test_what_a_socket_says_is_nothing_of_storage() -> None:
    """A bug of a script may end so on each try."""
    how: Any = {"exit_code": 1, "kind": "exit", "tail": ("OSError: [Errno 107] Transport endpoint is not connected",)}
    ledger = Ledger(900.0, failures=(failed(generation=3, **how),))
    assert isinstance(
        decide(replace(failing(**how), control=Control(GENERATION, ledger)), POLICY, NOW, world()), GiveUp
    )


def test_the_specs_rules_go_first() -> None:
    policy = replace(POLICY, rules=(Rule("ModuleNotFoundError", None, "restart"),))
    decision = decide(failing(tail=("ModuleNotFoundError: x",), kind="exit", exit_code=1), policy, NOW, world())
    assert isinstance(decision, Restart)


def test_a_node_that_fails_on_one_host_time_and_again_moves() -> None:
    before = tuple(failed(generation=n) for n in (2, 3))
    observed = replace(failing(), control=Control(GENERATION, Ledger(900.0, failures=before)))
    decision = decide(observed, POLICY, NOW, world(free_hosts=("s1",)))
    assert isinstance(decision, Restart)
    assert (decision.moves, decision.exclude) == ({1: "s1"}, {"h1"})
    progressed = tuple(replace(f, progress=f.generation) for f in before)
    observed = replace(observed, control=Control(GENERATION, Ledger(900.0, failures=progressed)))
    decision = decide(observed, POLICY, NOW, world(free_hosts=("s1",)))
    assert isinstance(decision, Restart)
    assert decision.moves == {}


def test_the_nodes_of_a_host_move_to_one_spare() -> None:
    """A host with a trainer and a server had one room for both, and so has a spare."""
    members = (*GENERATION.members, Member(3, 3, ("server",), "h1", "10.0.0.1", 1))
    generation = replace(GENERATION, members=members)
    server = replace(lost(3), role="server", host="h1")
    seen = Observed(Control(generation, Ledger(900.0)), (node(0), lost(1), node(2), server), supervised=True)
    world = World(cleared=frozenset({1, 3}), free_hosts=("spare", "other"), planned=HOMES | {3: "h1"}, least=4)
    decision = decide(seen, POLICY, NOW, world)
    assert isinstance(decision, Restart)
    assert (decision.moves, decision.without) == ({1: "spare", 3: "spare"}, frozenset())
