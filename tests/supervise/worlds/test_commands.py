"""Commands in the middle of everything, in random worlds: `restart`, `stop` and `up`, from machines that see a part of the job.

JOBCTL_TEST_WORLDS says how many: half of those.
"""

from __future__ import annotations

import random

import pytest

from jobctl.jobspec.launcher.recovery.going_back import CHANGE_TIMEOUT

from .alone import AloneBugs, AloneSim
from .clock import made
from .commands import Command
from .endings import end_alone, end_watched
from .faults import fault, mishap
from .search import WORLDS, hold_all
from .world import LATEST, Bugs, Sim, Twice

pytestmark = pytest.mark.usefixtures("simulated")
SKEWS = (0.0, 0.0, 0.0, 60.0, -60.0, -3600.0)  # seconds by which the clock of a command's machine is ahead


def command(sim: Sim, chance: random.Random, *, may_stop: bool) -> None:
    """Have somebody restart the job, make it another one, or stop it and bring it up again."""
    machine, killed_after = chance.choice(("s0", "s1", "s2")), chance.choice((None, None, None, 0, 1, 2))
    if chance.random() < 0.3:  # somebody has changed `host_timeout` in the spec
        sim.timeout = chance.choice((6.0, 20.0))
    if sim.least < len(sim.plans["s"]) and chance.random() < 0.4:
        change(sim, chance, chance.choice(("s0", "b0", "b0")))
    elif may_stop and chance.random() < 0.3:  # something kills the command before the next generation
        Command(sim, machine, killed_after=killed_after).begin_change([*sim.hosts][: chance.choice((0, 0, 0, 1, 5))])
    elif may_stop and chance.random() < 0.4 and Command(sim, machine).stop():
        sim.run(chance.choice((0.25, 1.0, 5.0, 20.0)))
        bring_up(sim, chance)
    else:
        Command(sim, machine, chance.choice(SKEWS), killed_after).restart()


def change(sim: Sim, chance: random.Random, machine: str) -> bool:
    """Have somebody change how many nodes the job has, also one who does not know what others have changed."""
    nodes = chance.randint(sim.least, len(sim.hosts))
    homes = {node: home for node, home in sim.newest().placement.items() if node < nodes}
    free = [name for name in sim.hosts if name not in homes.values()]
    homes |= dict(zip([node for node in range(nodes) if node not in homes], free, strict=False))
    return Command(sim, machine, chance.choice(SKEWS)).change(homes)


def bring_up(sim: Sim, chance: random.Random) -> None:
    """Bring a job up again that was stopped: somebody tries until it can be."""
    for _ in range(3):
        if Command(sim, chance.choice(("s0", "s1")), chance.choice(SKEWS)).up():
            return
        sim.run(1.0)
    sim.cuts = set()
    for host in sim.hosts.values():
        host.on, host.paused = True, False
    sim.run(5.0)
    assert Command(sim, "s0").up()


def happen(sim: Sim, chance: random.Random, *, may_stop: bool) -> None:
    """Let several things happen, and commands among them."""
    for _ in range(chance.randint(2, 8)):
        if chance.random() < 0.4:
            command(sim, chance, may_stop=may_stop)
        elif isinstance(sim, AloneSim) and not sim.watched:
            mishap(sim, chance)
        else:
            fault(sim, chance)
        sim.run(chance.choice((0.25, 0.5, 2.0, 5.0, 9.0, 12.0, 25.0)) * sim.timeout / 6)


def live(seed: int, bugs: Bugs | None = None) -> Sim:
    """Let a world with supervisors live through faults and commands."""
    chance = random.Random(seed)
    nodes = chance.choice((1, 2, 2, 3, 3, 4, 5))
    least = nodes if chance.random() < 0.4 else chance.randint(1, nodes)
    sim = Sim(nodes, chance.choice((0, 1, 1, 2)), seed, least=least, bugs=bugs)
    sim.run(5.0)
    happen(sim, chance, may_stop=False)  # launchers do not tell each other of a stop there
    return sim


def live_alone(seed: int, bugs: AloneBugs | None = None) -> AloneSim:
    """Let a world live through them whose launchers begin generations, and in every other one move nodes, by themselves."""
    chance = random.Random(seed)
    hot = chance.random() < 0.5
    nodes = chance.choice((3, 3, 4, 5)) if hot else chance.choice((1, 2, 2, 3, 3, 4, 5))
    sim = made(AloneSim, nodes, chance.choice((1, 1, 2)), seed, watched=True, hot=hot, bugs=bugs)
    sim.watched = seed % 3 == 0
    if chance.random() < 0.5:
        sim.kill_supervisor()
    happen(sim, chance, may_stop=True)
    return sim


def test_a_restart_of_a_part_of_an_elastic_job_does_not_run_a_node_twice() -> None:
    """The supervisor moves the node that the command has begun alone, which would keep its lease by itself."""
    sim = Sim(3, 1, 0, least=1)
    sim.late = 0.0
    sim.run(5.0)
    sim.partition({name: name in ("h2", "s1") for name in (*sim.hosts, "s0", "s1")})
    sim.run(2.0)
    assert not Command(sim, "s1").restart()
    sim.run(2 * sim.timeout + 20.0)
    assert sim.newest().placement[2] == "h3"


def lower_the_timeout(bugs: Bugs | None = None) -> Sim:
    """Give all but one host an order with shorter leases, and cut that one off: it keeps a long one."""
    sim = Sim(3, 1, 0, bugs=bugs)
    sim.late, sim.timeout = 0.0, 20.0
    assert Command(sim, "s0").restart()
    sim.run(5.0)
    sim.hosts["h0"].full, sim.timeout = True, 6.0
    assert Command(sim, "s0").restart()
    sim.partition({name: name == "h0" for name in (*sim.hosts, "s0")})
    sim.run(60.0)
    return sim


def test_a_node_with_a_lease_from_before_a_lower_timeout_keeps_it_to_the_end() -> None:
    sim = lower_the_timeout()
    assert (sim.newest().placement[0], sim.all_train()) == ("h3", True)
    generation = sim.newest().generation
    assert generation is not None
    assert (generation.host_timeout, generation.longest_lease) == (6.0, 20.0)
    sim.fail(sim.hosts["h1"])
    sim.heal(30.0)
    generation = sim.newest().generation
    assert generation is not None
    assert (generation.longest_lease, sim.all_train()) == (None, True)


def test_a_lower_timeout_that_counts_at_once_is_found() -> None:
    with pytest.raises(Twice):
        lower_the_timeout(Bugs(forgets_leases=True))


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_command_that_reaches_half_of_the_nodes_begins_nothing_beside_the_others(nodes: int) -> None:
    """Their supervisor hears half of the nodes, which is enough for it to move those that the command would begin."""
    sim = Sim(nodes, nodes // 2, 0, least=1)
    sim.late = 0.0
    sim.run(5.0)
    here = {*[f"h{node}" for node in range(nodes // 2)], "s1"}
    sim.partition({name: name in here for name in (*sim.hosts, "s0", "s1")})
    sim.run(1.0)
    assert not Command(sim, "s1").restart()
    sim.run(2 * sim.timeout + 20.0)
    assert (sim.all_train(), sorted(sim.newest().placement)) == (True, list(range(nodes)))


@pytest.mark.parametrize("nodes", [{0: "h0", 1: "h1"}, {0: "h0", 1: "h1", 2: "h2", 3: "h3"}])
def test_a_job_that_another_machine_has_changed_stays_as_it_is_now(nodes: dict[int, str]) -> None:
    """The supervisor that has watched it knows the job as it was, and steps aside for one that knows better."""
    sim = Sim(3, 1, 0, least=1)
    sim.late = 0.0
    sim.run(5.0)
    assert Command(sim, "b0").change(nodes)
    sim.run(30.0)
    assert ([one.machine for one in sim.supervisors], sim.newest().placement, sim.all_train()) == (["b0"], nodes, True)
    assert not Command(sim, "s1").restart()
    sim.fail(sim.hosts["h1"])
    sim.run(10.0)
    assert (sim.newest().placement, sim.all_train()) == (nodes, True)
    assert Command(sim, "s0").change({node: f"h{node}" for node in range(3)})
    sim.run(30.0)
    assert ([one.machine for one in sim.supervisors], len(sim.newest().placement)) == (["s0"], 3)


@pytest.mark.parametrize("hosts", [1, 2])
def test_launchers_hand_on_an_order_whose_command_was_killed(hosts: int) -> None:
    """Nobody watches, and only some hosts have received it."""
    sim = made(AloneSim, 3, 0, 1, watched=False)
    Command(sim, "s0", killed_after=hosts).restart()
    sim.run(sim.timeout + 5.0)
    assert (sim.all_train(), sim.newest().generation and sim.newest().generation.number) == (True, 2)


@pytest.mark.parametrize("hosts", [1, 3])
def test_launchers_go_on_where_a_change_was_cut_off(hosts: int) -> None:
    """Its command has stopped the job, on some hosts at least, and replaced nothing yet; nobody watches."""
    sim = made(AloneSim, 3, 0, 1, watched=False)
    assert Command(sim, "s0", killed_after=hosts).begin_change()
    sim.run(CHANGE_TIMEOUT - 1.0)
    assert not sim.any_trains()
    sim.run(8.0)
    generation = sim.newest().generation
    assert generation is not None
    assert (sim.all_train(), generation.number, generation.pause) == (True, 2, 1)
    assert Command(sim, "s1").begin_change()
    sim.run(CHANGE_TIMEOUT + 8.0)
    generation = sim.newest().generation
    assert (sim.all_train(), generation and generation.number, generation and generation.pause) == (True, 3, 2)


@pytest.mark.parametrize("replaced", ["h0", "h1"])
def test_launchers_wait_where_a_change_has_replaced_one_of_them(replaced: str) -> None:
    """They would go on with two different specs. The next command counts, whatever they have waited for."""
    sim = made(AloneSim, 3, 0, 1, watched=False)
    assert Command(sim, "s0").begin_change([replaced])
    sim.run(2 * CHANGE_TIMEOUT)
    assert not sim.any_trains()
    assert Command(sim, "s1").up()
    sim.run(10.0)
    assert (sim.all_train(), sim.newest().generation and sim.newest().generation.number) == (True, 2)


def test_the_only_launcher_waits_where_a_change_has_replaced_it() -> None:
    """It would go on with the old order in what the change has made of its container. The next command counts."""
    sim = made(AloneSim, 1, 0, 1, watched=False)
    assert Command(sim, "s0").begin_change(["h0"])
    sim.run(2 * CHANGE_TIMEOUT)
    assert not sim.any_trains()
    assert Command(sim, "s1").up()
    sim.run(10.0)
    assert sim.all_train()


@pytest.mark.parametrize("before", [0.0, CHANGE_TIMEOUT + 10.0])
def test_a_stop_is_a_stop_also_after_a_change_that_was_cut_off(before: float) -> None:
    """It may come from a machine that knows neither of the change nor of what launchers have begun after it."""
    sim = made(AloneSim, 3, 0, 1, watched=False)
    unaware = Command(sim, "s1")
    assert Command(sim, "s0").begin_change()
    sim.run(before)
    assert unaware.stop()
    sim.run(2 * CHANGE_TIMEOUT)
    assert not sim.any_trains()


def test_a_change_that_is_cut_off_ends_no_node_that_launchers_have_moved() -> None:
    """Its command did not know of the move. The next one does."""
    sim = made(AloneSim, 3, 1, 1, watched=False, hot=True)
    unaware = Command(sim, "s1")
    sim.hosts["h1"].power_off()
    sim.run(sim.timeout + 6.0)
    assert unaware.begin_change()
    sim.run(2.0)
    assert (sim.all_train(), sim.newest().placement[1]) == (True, "h3")


def test_launchers_that_wait_for_ever_after_a_change_are_found() -> None:
    sim = made(AloneSim, 3, 0, 1, watched=False, bugs=AloneBugs(waits_for_ever=True))
    assert Command(sim, "s0").begin_change()
    sim.heal(CHANGE_TIMEOUT + 30.0)
    assert not sim.any_trains()


def end(sim: Sim) -> str | None:
    """Repair everything, and say what is wrong with how the world is after that."""
    sim.heal(0.0)
    if is_stopped(sim):
        sim.heal(LATEST)  # what `up` has ordered since may be on its way
    generation = sim.newest().generation
    if generation is not None and generation.is_paused and isinstance(sim, AloneSim) and not sim.watched:
        # Then they have gone on, or a launcher is another one than before
        sim.heal(2 * sim.timeout + CHANGE_TIMEOUT + 30.0)
        generation = sim.newest().generation
        assert generation is not None
        if generation.is_paused and not Command(sim, "s0").up():
            return "cannot be brought up after a change"
    sim.timeout = 20.0  # there may be leases of that length
    wrong = end_alone(sim) if isinstance(sim, AloneSim) else end_watched(sim)
    return "is said to be stopped, although it was brought up again" if is_stopped(sim) else wrong


def is_stopped(sim: Sim) -> bool:
    """Say whether the newest that hosts know is that somebody has stopped the job."""
    result = sim.newest().ledger.result
    return result is not None and result.phase == "stopped"


def end_stopped(sim: AloneSim) -> str | None:
    """Repair everything, stop the job, and say what is wrong with how the world is after that."""
    sim.heal(1.0)
    Command(sim, "s1").stop()
    sim.heal(2 * sim.timeout + 30.0)
    return "trains on after it was stopped" if sim.any_trains() else None


@pytest.mark.parametrize("batch", range(4))
def test_no_node_trains_twice_and_all_train_again(batch: int) -> None:
    hold_all(range(batch, WORLDS // 2, 4), lambda seed: end(live(seed)))


@pytest.mark.parametrize("batch", range(4))
def test_launchers_that_decide_follow_commands(batch: int) -> None:
    hold_all(range(batch, WORLDS // 2, 4), lambda seed: (end_stopped if seed % 4 == 3 else end)(live_alone(seed)))
