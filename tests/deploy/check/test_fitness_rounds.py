"""How often a fitness check measures a host, and what counts of what it has measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.check.fitness.rounds import OF_ALL, Doubts, in_turns, measure_in_rounds
from jobctl.jobspec.deploy.check.fitness.samples import Sample, SharedCores
from jobctl.jobspec.deploy.check.fitness.verdicts import Values, judge_all


def test_hosts_of_one_machine_are_measured_in_turn_and_from_both_ends() -> None:
    assert in_turns([["a", "b"], ["c"]], 0) == [["a", "b"], ["c"]]
    assert in_turns([["a", "b"], ["c"]], 1) == [["b", "a"], ["c"]]


def test_only_doubtful_hosts_are_measured_again() -> None:
    rounds: list[list[list[str]]] = []

    def measure(groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        rounds.append([list(group) for group in groups])
        assert len(rounds) <= 2 or doubts == {"c": frozenset({"all cores"})}
        slow = {"c": 3.0 if len(rounds) < 4 else 6.0}
        return {"all cores": {(host, ""): slow.get(host, 6.0) for group in groups for host in group}}

    values = measure_in_rounds([["a", "b", "c"], ["d"]], measure, {}, rounds=2, again=3)
    assert rounds == [[["a", "b", "c"], ["d"]], [["c", "b", "a"], ["d"]], [["c"]], [["c"]]]
    # The last value of c counts, since a and b have the same cores: it is weighed over all rounds.
    assert values["all cores"] == {("a", ""): 6.0, ("b", ""): 6.0, ("c", ""): 6.0, ("d", ""): 6.0}


@pytest.mark.parametrize(("real", "named", "rounds"), [(1.0, [], 4), (0.25, ["c"], 6), (0.05, ["c"], 4)])
def test_a_disk_that_all_hosts_share_is_slow_for_whoever_writes_in_a_bad_moment(
    real: float, named: list[str], rounds: int
) -> None:
    """In every round in which `c` writes, others write more: the fastest of its machine is as slow then, and `c` or not.

    Three comparisons are enough to clear it. A tenth of what is too slow is certain after as many.
    """
    asked: list[dict[str, list[str]]] = []

    def measure(groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        asked.append({host: sorted(names) for host, names in (doubts or {}).items()})
        moment = 1000.0 if doubts is None else 300.0
        slow = {"c": real if doubts else 0.3 * real}
        return {"writing": {(host, ""): moment * slow.get(host, 1.0) for group in groups for host in group}}

    values = measure_in_rounds([["a", "b", "c", "d"]], measure, {}, rounds=2, again=4)
    assert [one.place[0] for one in judge_all(values, {}) if one.verdict != "ok"] == named
    assert asked[2] == {"a": ["writing"], "c": ["writing"]}
    assert len(asked) == rounds


@pytest.mark.parametrize(("real", "named"), [(1.0, []), (0.02, ["c"])])
def test_a_disk_whose_speed_doubles_and_halves_by_the_moment_accuses_nobody(real: float, named: list[str]) -> None:
    """As on hosts at a load of 50, where a healthy one wrote at 718 MB/s at best, and others at 1510."""
    shares = iter([0.2, 0.9, 0.3, 0.6, 0.5])

    def measure(groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        moment, share = (600.0, next(shares)) if doubts else (1500.0, 0.3)
        slow = {"c": real * share}
        return {"writing": {(host, ""): moment * slow.get(host, 1.0) for group in groups for host in group}}

    values = measure_in_rounds([["a", "b", "c", "d"]], measure, {}, rounds=2, again=4)
    assert [one.place[0] for one in judge_all(values, {}) if one.verdict == "error"] == named


def test_the_order_of_turns_changes_in_further_rounds_too() -> None:
    """Who writes first finds another disk than who writes next: the first one's file is being removed then."""
    turns: list[list[list[str]]] = []

    def measure(groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        turns.append([list(group) for group in groups])
        return {"writing": {(host, ""): 3.0 if host == "b" else 9.0 for group in groups for host in group}}

    measure_in_rounds([["a", "b", "c"]], measure, {}, rounds=2, again=2)
    assert turns == [[["a", "b", "c"]], [["c", "b", "a"]], [["a", "b"]], [["b", "a"]]]


def test_hosts_of_their_own_machines_are_compared_with_none_of_the_same_moment() -> None:
    asked: list[Doubts | None] = []

    def measure(groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        asked.append(doubts)
        return {"writing": {(host, ""): 300.0 if host == "c" else 1000.0 for group in groups for host in group}}

    values = measure_in_rounds([["a"], ["b"], ["c"], ["d"]], measure, {}, rounds=2, again=1)
    assert asked == [None, dict.fromkeys("abcd", OF_ALL), {"c": frozenset({"writing"})}]
    assert values["writing"]["c", ""] == 300.0


def test_hosts_of_one_machine_wait_in_further_rounds_for_nothing_but_cores() -> None:
    asked: list[Doubts | None] = []

    def measure(groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        asked.append(doubts)
        return {name: {(host, ""): 5.0 for group in groups for host in group} for name in ("all cores", "writing")}

    cores = frozenset({"all cores"})
    measure_in_rounds([["a", "b"], ["c"]], measure, {}, 2, 4, lambda name, host: name in cores and host == "b")
    assert asked == [None, {"a": cores, "c": OF_ALL}]  # `b` had all of them, so it is as fast as it looked
    assert not OF_ALL & {"matrix products", "copies to the device"}  # devices are measured once


def test_a_host_that_had_the_same_share_of_cores_three_times_is_not_measured_again() -> None:
    whole, part, slow = (Sample(share, 1.25, share, 0.0, 2, share) for share in (2.0, 1.6, 1.6))
    cores = SharedCores()
    told = []
    for _ in range(3):
        cores.speeds({"a": whole, "b": part, "c": replace(slow, work=0.8), "d": whole})
        told.append([cores.steady(host) for host in "abc"])
    assert told == [[False] * 3, [False] * 3, [True, True, False]]  # the cores of `c` look slow, by chance perhaps
    cores.speeds({"a": replace(whole, cores=1.8)})
    assert not cores.steady("a")


def test_a_host_that_ran_on_all_cores_all_the_time_has_proven_its_share() -> None:
    """A quota of 0.8 leaves it nine tenths of the cores at most, in two of its periods: others may hide that, it may not."""
    cores = SharedCores()
    ran, waited = Sample(2.0, 1.0, 1.96, 0.0, 2, 2.0), Sample(1.8, 1.0, 1.8, 0.0, 2, 2.0)
    cores.speeds({"a": ran, "b": waited, "c": replace(ran, work=1.0), "d": ran})
    assert [cores.steady(host) for host in "abcd"] == [True, False, False, True]
    cores = SharedCores()
    cores.speeds({"a": ran, "b": replace(ran, cpu=1.3, idle=0.7), "c": ran})  # half a second in which cores were idle
    assert cores.speeds({"b": ran}) == dict.fromkeys("abc", pytest.approx(2.0, rel=0.03))


def test_rounds_end_where_a_host_is_steady() -> None:
    asked: list[Doubts | None] = []

    def measure(groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        asked.append(doubts)
        return {"all cores": {(host, ""): 4.0 if host == "b" else 6.0 for group in groups for host in group}}

    measure_in_rounds([list("abcd")], measure, {}, 2, 4, lambda _, host: host == "b" and len(asked) == 3)
    assert asked[2:] == [{"b": frozenset({"all cores"})}]
    asked.clear()  # hosts of their own are measured side by side, so more rounds take no time
    measure_in_rounds([[host] for host in "abcd"], measure, {}, 2, 4, lambda *_: True)
    assert asked[2:] == [{"b": frozenset({"all cores"})}] * 4
