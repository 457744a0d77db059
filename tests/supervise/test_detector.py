"""What a supervisor without etcd makes of ticks: whose it answers, and which nodes cannot run any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.model.liveness import EXPIRY, RECENT, SILENCE, FailureDetector
from jobctl.jobspec.deploy.model.tick import tick_of
from jobctl.jobspec.launcher.peers.lease import PROBE_MARK
from jobctl.jobspec.launcher.peers.old_places import CONFIRMED, MARGIN
from jobctl.jobspec.plan.generation import AutonomyTerms, Base, Generation, HotSpare, Moves, OldPlace

from .jobs_on_hosts import GENERATION

TIMEOUT = 10.0
THREE = replace(GENERATION, host_timeout=TIMEOUT)
FOUR = replace(THREE, members=(*THREE.members, replace(THREE.members[0], node=3, rank=3, host="h3")))
PAIR = replace(THREE, members=THREE.members[:2])


def test_ticks_tell_how_long_processes_need_since_the_report() -> None:
    supervisor = Supervisor()
    supervisor.tick(0, paces={"0": 0.25, "1": "x"}, progress=7)
    report = {"progress": 3, "processes": [{"local_rank": 0, "rank": 4}, {"local_rank": 1, "rank": 5}]}
    assert supervisor.detector.refreshed(0, report) == {
        "progress": 7,
        "processes": [
            {"local_rank": 0, "rank": 4, "own_seconds": 0.25},
            {"local_rank": 1, "rank": 5, "own_seconds": None},
        ],
    }
    assert supervisor.detector.refreshed(1, report) == report
    supervisor.detector.expect(replace(THREE, number=5, rendezvous=replace(THREE.rendezvous, id="job-5")))
    assert supervisor.detector.refreshed(0, report)["processes"] == report["processes"]


def test_a_launcher_without_a_node_gets_no_answer_and_has_no_voice() -> None:
    supervisor = Supervisor()
    assert supervisor.tick(-1, "h1", unheard={0: 99.0}) is None
    assert -1 not in supervisor.detector.progress


def test_launchers_hear_nothing_of_a_supervisor_that_leaves_all_to_them() -> None:
    supervisor = Supervisor()
    told = tick_of({"node": 0, "tick": "t", "generation": THREE.rendezvous.id})
    for silent in (False, True, False):
        supervisor.detector.silent = silent
        for host in ("h0", "h1"):
            supervisor.detector.hear_host(host)
        answer = supervisor.detector.hear(told, "h0")
        assert answer == (None if silent else f"t me:100.000{PROBE_MARK}")


class Supervisor:
    """A failure detector with a clock that is set by hand, and launchers that say whom they have not answered since when."""

    def __init__(self, generation: Generation = THREE) -> None:
        self.now = 100.0
        self.detector = FailureDetector(lambda: self.now, "me")
        self.detector.expect(generation)
        self.stamp: str | None = None

    def tick(
        self, node: int, host: str | None = None, unheard: dict[int, float] | None = None, **more: Any
    ) -> str | None:
        """Hear a launcher, which repeats what it was told last; return the answer, None for a probe."""
        gone = {str(other): age for other, age in (unheard or {}).items()}
        line = {"node": node, "tick": "t", "generation": "job-4", "report": "1.1", "progress": 1, "echo": self.stamp}
        answer = self.detector.hear(tick_of({**line, "unheard": gone, **more}), host or f"h{node}")
        self.stamp = answer.split()[1] if answer else self.stamp
        return None if answer is not None and answer.endswith(PROBE_MARK) else answer

    def confirm(self, *nodes: int) -> None:
        """Hear hosts, and launchers that have just got an answer."""
        self.hosts(*nodes)
        for node in nodes:
            self.tick(node, echo=f"me:{self.now:.3f}")

    def hosts(self, *nodes: int) -> None:
        """Hear the ticks of hosts."""
        for node in nodes:
            self.detector.hear_host(f"h{node}")

    def later(self, seconds: float, *nodes: int, lost: dict[int, float] | None = None) -> None:
        """Let time pass, half a second at a time, in which some hosts and launchers are heard.

        `lost` are nodes with the moment at which these launchers have answered them last.
        """
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            self.hosts(*nodes)
            for node in nodes:
                self.tick(node, unheard={other: self.now - at for other, at in (lost or {}).items()})


def test_a_node_is_cleared_a_margin_after_its_lease_is_over() -> None:
    one = Supervisor()
    one.later(2, 0, 1, 2)
    last = one.now
    one.later(TIMEOUT + MARGIN - 0.5, 0, 1, lost={2: last})
    assert one.detector.cleared() == frozenset()
    one.later(1, 0, 1, lost={2: last})
    assert one.detector.cleared() == frozenset({2})


def test_a_node_that_a_launcher_has_answered_later_keeps_its_lease_so_much_longer() -> None:
    one = Supervisor()
    one.later(2, 0, 1, 2)
    last = one.now + 5
    one.later(5 + TIMEOUT + MARGIN - 0.5, 0, 1, lost={2: last})
    assert one.detector.cleared() == frozenset()
    one.later(1, 0, 1, lost={2: last})
    assert one.detector.cleared() == frozenset({2})


def test_what_was_said_long_ago_clears_nobody() -> None:
    one = Supervisor()
    one.later(2, 0, 1, 2)
    last = one.now
    one.later(TIMEOUT + MARGIN + 1, 0, 1, lost={2: last})
    one.now += RECENT + 1
    one.hosts(0, 1)
    assert one.detector.cleared() == frozenset()


def test_a_launcher_is_answered_where_its_node_belongs_and_nowhere_else() -> None:
    one = Supervisor()
    one.confirm(0, 1)
    assert one.tick(1) == "t me:100.000"
    assert one.tick(1, "h9") is None


def test_a_launcher_of_another_generation_is_not_answered() -> None:
    one = Supervisor()
    one.confirm(0, 1)
    assert one.tick(1, generation="job-3") is None


def test_only_probes_are_sent_until_half_of_the_launchers_have_repeated_a_recent_answer() -> None:
    """Ticks may arrive while answers do not: then others move a node that this supervisor keeps alive."""
    one = Supervisor(FOUR)
    one.hosts(0, 1, 2, 3)
    said = one.detector.hear(tick_of({"node": 0, "tick": "t", "generation": "job-4"}), "h0")
    assert said == f"t me:100.000{PROBE_MARK}"
    assert one.tick(0, echo=said.split()[1]) is None  # one of four has
    assert one.tick(1, echo="other:100.0") is None  # that was another supervisor
    assert one.tick(1, echo="me:100.0") == "t me:100.000"
    one.now += CONFIRMED + 0.5
    one.hosts(0, 1, 2, 3)
    assert (one.tick(0, echo="me:100.0"), one.detector.too_few()) == (None, False)
    one.tick(2, echo=f"me:{one.now:.3f}{PROBE_MARK}")
    assert one.tick(0, echo=f"me:{one.now:.3f}") == "t me:103.500"


def test_what_a_launcher_has_repeated_on_another_host_does_not_count() -> None:
    """It knows nothing of what the one at the node's new place has done."""
    one = Supervisor()
    one.confirm(0, 1)
    elsewhere = (THREE.members[0], replace(THREE.members[1], host="h9"), THREE.members[2])
    one.detector.expect(replace(THREE, number=5, members=elsewhere))
    one.detector.hear_host("h9")
    assert one.tick(0) is None
    one.tick(1, "h9", echo="me:100.0")
    assert one.tick(0) is not None


def test_an_older_generation_is_not_taken_for_the_current_one() -> None:
    one = Supervisor()
    one.detector.expect(replace(THREE, number=3, rendezvous=replace(THREE.rendezvous, id="job-3")))
    assert one.detector.generation == THREE


def test_half_of_the_hosts_are_enough_and_fewer_are_not() -> None:
    one = Supervisor(FOUR)
    one.confirm(0, 1)
    assert (one.tick(0), one.detector.too_few()) == ("t me:100.000", False)
    one.now += SILENCE + 0.5
    one.hosts(0)
    assert (one.tick(0), one.detector.too_few()) == (None, True)


def test_half_are_not_enough_beside_a_supervisor_that_may_live() -> None:
    one = Supervisor(PAIR)
    one.detector.succeed()
    one.confirm(0)
    assert (one.tick(0), one.detector.too_few()) == (None, True)
    one.now += 1.0
    one.hosts(1)
    assert one.tick(0) is None
    one.confirm(1)
    assert one.tick(0) is not None


def test_who_takes_over_waits_for_leases_that_the_one_before_may_have_renewed() -> None:
    one = Supervisor()
    one.detector.succeed()
    last = one.now
    one.later(EXPIRY + TIMEOUT + MARGIN - 1, 0, 1, lost={2: last})
    assert one.detector.cleared() == frozenset()
    one.later(1.5, 0, 1, lost={2: last})
    assert one.detector.cleared() == frozenset({2})


def test_a_host_is_silent_three_seconds_after_its_last_tick() -> None:
    one = Supervisor()
    assert one.detector.seconds_overdue("h0") is None  # it has never been heard
    one.hosts(0)
    one.now += SILENCE
    assert one.detector.seconds_overdue("h0") is None
    one.now += 0.5
    assert one.detector.seconds_overdue("h0") == SILENCE + 0.5


def test_the_name_of_a_tick_is_one_line() -> None:
    """It is repeated in the answer, where each line is one."""
    line = {"node": 1, "tick": "t", "generation": "job-4"}
    assert tick_of(line) is not None
    assert tick_of({**line, "tick": "t\nu"}) is None


def moved(generation: Generation, *nodes: int) -> Generation:
    """Return a generation in which nodes were elsewhere before: on hosts that nobody can look at."""
    places = tuple(OldPlace(node, "gone") for node in nodes)
    return replace(generation, moves=Moves(places, len(generation.members)))


def test_a_node_that_has_moved_is_answered_once_half_are_clear_of_its_old_place() -> None:
    one = Supervisor(moved(FOUR, 3))
    one.confirm(0, 1, 3)
    one.hosts(2)
    assert one.tick(3, clear=[3]) is None  # what it says of itself does not count
    assert (one.tick(0, clear=[3]) is not None, one.tick(3)) == (True, None)
    assert one.tick(1, clear=[]) is not None
    assert one.tick(3) is None
    one.tick(2, clear=[3])
    assert one.tick(3) is not None
    one.tick(2, clear=[])
    assert one.tick(3) is not None  # it answers nothing older any more


def test_a_second_supervisor_wants_more_than_half_to_be_clear() -> None:
    one = Supervisor(moved(FOUR, 3))
    one.detector.succeed()
    one.confirm(0, 1, 3)
    one.hosts(2)
    one.tick(0, clear=[3])
    one.tick(1, clear=[3])
    assert one.tick(3) is None
    one.tick(2, clear=[3])
    assert one.tick(3) is not None


def test_a_moved_node_is_answered_where_nothing_of_it_is_at_its_old_place_any_more() -> None:
    """Of two nodes, one that stays is not enough for a second supervisor, and nobody else would ever be clear."""
    one = Supervisor(moved(PAIR, 1))
    one.detector.succeed()
    one.later(2 * TIMEOUT, 0, 1)
    assert one.tick(1) is None
    one.detector.vacate({OldPlace(1, "gone"): 100.0})  # before the generation was known
    assert one.tick(1) is None
    one.detector.vacate({OldPlace(1, "gone"): one.now})
    assert one.tick(1) is not None


def test_a_launcher_that_cannot_say_it_is_clear_once_its_old_answers_are_over() -> None:
    one = Supervisor(moved(PAIR, 1))
    one.later(TIMEOUT + MARGIN - 0.5, 0, 1)
    assert one.tick(1) is None
    one.later(1.0, 0, 1)
    assert one.tick(1) is not None


def test_a_launcher_that_has_ended_does_not_keep_a_moved_node_waiting() -> None:
    """Its node has done its work in this generation, so it says nothing more, and it has answered no older one since."""
    one = Supervisor(moved(PAIR, 1))
    one.hosts(0, 1)
    one.tick(0, clear=[])
    one.later(TIMEOUT + MARGIN - 0.5, 1)
    assert one.tick(1) is None
    one.later(1.0, 1)
    assert one.tick(1) is not None


def test_hosts_keep_the_name_of_a_supervisor_that_hears_more_than_half() -> None:
    one = Supervisor(FOUR)
    one.detector.succeed()
    one.hosts(0, 1)
    assert not one.detector.may_own()
    one.hosts(2)
    assert one.detector.may_own()
    one.now += SILENCE + 0.1
    assert not one.detector.may_own()


def may_move(generation: Generation) -> Generation:
    """The same, where launchers may move nodes to a hot spare."""
    base = Base(generation.number, generation.rendezvous.id)
    return replace(
        generation, autonomy=AutonomyTerms(3, (), (1, 9), base=base, spares=(HotSpare("s1", "10.0.0.9", 7),))
    )


def test_where_launchers_may_have_moved_nodes_half_of_them_say_that_they_have_not() -> None:
    """This supervisor may not know of it: then one of each half keeps the node alive elsewhere."""
    supervisor = Supervisor(may_move(THREE))
    supervisor.hosts(1, 2)
    supervisor.confirm(0)
    assert supervisor.tick(0) is None
    assert supervisor.tick(1, kept=[0]) is not None
    assert supervisor.tick(0) is None
    assert supervisor.tick(2) is not None
    assert supervisor.tick(0) is not None


def test_a_host_whose_launcher_is_in_a_later_order_does_not_count() -> None:
    """Its supervisor answers nobody on the word of those that have gone on without it."""
    supervisor = Supervisor()
    supervisor.confirm(0, 1)
    supervisor.later(1.0)
    supervisor.tick(1, generation="job-5-x")
    assert supervisor.tick(0) is None
    supervisor.later(1.0)
    supervisor.hosts(0, 1)
    supervisor.tick(1)
    assert supervisor.tick(0) is not None


def test_a_node_that_was_not_heard_since_leases_are_shorter_may_have_a_longer_one() -> None:
    for heard, limit in (((), 3 * TIMEOUT), ((2,), TIMEOUT)):
        one = Supervisor(replace(THREE, longest_lease=3 * TIMEOUT))
        one.later(1, 0, 1, *heard)
        last = one.now if heard else 100.0
        one.later(last + limit + MARGIN - one.now - 0.5, 0, 1, lost={2: last})
        assert one.detector.cleared() == frozenset()
        one.later(1, 0, 1, lost={2: last})
        assert one.detector.cleared() == frozenset({2})
