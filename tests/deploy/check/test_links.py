"""Which hosts a check of links and sums names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jobctl.jobspec.deploy.check.fitness.links import (
    LinkSpeed,
    LinkTransfer,
    Pair,
    by_host,
    deciding,
    disjoint_groups,
    doubtful,
    is_steady,
    lossy,
    measure_links,
    slow_pairs,
    unsure,
)
from jobctl.jobspec.deploy.check.fitness.sums import digest, wrong_sums
from jobctl.jobspec.deploy.check.fitness.verdicts import (
    METRIC,
    judge,
)

# Links.


def link_check(slow: set[str], size: int, lossy_hosts: frozenset[str] = frozenset()) -> tuple[set[str], int]:
    """Return which hosts are named, and in how many rounds; `slow` hosts have half the speed, `lossy_hosts` lose 1 %."""
    rounds: list[Sequence[Pair]] = []

    def measure(pairs: Sequence[Pair]) -> dict[Pair, LinkSpeed]:
        hosts = [host for pair in pairs for host in pair]
        assert len(hosts) == len(set(hosts))  # side by side
        rounds.append(pairs)
        return {
            pair: LinkSpeed(500.0 if slow & set(pair) else 1000.0, 0.01 if lossy_hosts & set(pair) else 1e-5, 1000.0)
            for pair in pairs
        }

    hosts = [f"h{number}" for number in range(size)]
    found = by_host(measure_links(hosts, measure))
    metric = METRIC["link to other hosts"]
    judged = judge(metric, {(host, ""): one.speed for host, one in found.items()}, {})
    assert set(found) == set(hosts)
    return {one.place[0] for one in judged if one.verdict == "error"} | set(lossy(found)), len(rounds)


@pytest.mark.parametrize("size", [4, 5, 8, 9, 64])
def test_two_rounds_name_the_host_with_a_slow_link_whatever_their_number(size: int) -> None:
    for number in range(size):
        rounds = 3 if size == 5 and number < 4 else 2  # three suspects, and only two hosts that are proven
        assert link_check({f"h{number}"}, size) == ({f"h{number}"}, rounds)
        assert link_check(set(), size, frozenset({f"h{number}"})) == ({f"h{number}"}, rounds)
    assert link_check(set(), size) == (set(), 1 + size % 2)


def test_two_slow_hosts_are_both_named() -> None:
    assert link_check({"h0", "h1"}, 8) == ({"h0", "h1"}, 2)
    assert link_check({"h0", "h5"}, 8) == ({"h0", "h5"}, 2)


@pytest.mark.parametrize(("lossy_host", "rounds"), [("h2", 2), ("h3", 3)])
def test_hosts_pair_up_again_if_each_pair_has_a_bad_one(lossy_host: str, rounds: int) -> None:
    """One that is slow, and one that loses, in a pair each: their partners are not to blame."""
    assert link_check({"h1"}, 4, frozenset({lossy_host})) == ({"h1", lossy_host}, rounds)


def test_rounds_go_on_until_each_suspect_has_met_a_proven_host() -> None:
    """Two hosts are bad, and two others lose by chance in the first round: only two are proven then, and six are suspects."""
    rounds: list[Sequence[Pair]] = []

    def measure(pairs: Sequence[Pair]) -> dict[Pair, LinkSpeed]:
        rounds.append(pairs)
        loses = {"h0", "h2"} if len(rounds) == 1 else {"h0"}
        return {
            pair: LinkSpeed(500.0 if "h6" in pair else 1000.0, 0.01 if loses & set(pair) else 0.0, 1000.0)
            for pair in pairs
        }

    found = by_host(measure_links([f"h{number}" for number in range(8)], measure))
    assert {host for host, one in found.items() if one.speed < 1000.0} == {"h6"}
    assert set(lossy(found)) == {"h0"}
    assert len(rounds) == 4


@pytest.mark.parametrize("host", ["h0", "h1", "h2"])
def test_three_hosts_take_three_rounds(host: str) -> None:
    assert link_check({host}, 3) == ({host}, 3)


def test_of_two_hosts_nobody_can_say_whose_link_is_slow() -> None:
    assert link_check({"h0"}, 2) == (set(), 1)


def test_what_is_between_two_hosts_is_slow_if_both_are_fast_with_others() -> None:
    fast, slow = LinkSpeed(1000.0, 0.0, 1000.0), LinkSpeed(300.0, 0.0, 300.0)
    assert slow_pairs({("a", "b"): slow, ("c", "d"): fast, ("c", "a"): fast, ("d", "b"): fast}) == [("a", "b")]
    assert slow_pairs({("a", "b"): slow, ("c", "d"): fast, ("c", "a"): slow, ("d", "b"): fast}) == []


def test_slow_pairs_are_measured_again_apart_from_each_other() -> None:
    fast, slow, lost = LinkSpeed(1e3, 0.0, 1e3), LinkSpeed(600.0, 0.0, 1e3), LinkSpeed(1e3, 0.01, 1e3)
    found = {("a", "b"): slow, ("c", "d"): fast, ("a", "c"): lost, ("d", "b"): slow}
    assert doubtful(found) == [("a", "b"), ("a", "c"), ("d", "b")]
    assert doubtful({("a", "b"): LinkSpeed(1e3, 0.003, 1e3)}) == [("a", "b")]  # which may have been lucky
    assert disjoint_groups(doubtful(found)) == [[("a", "b")], [("a", "c"), ("d", "b")]]


def test_a_link_that_was_disturbed_once_is_measured_again_for_it_would_hide_a_slow_one() -> None:
    """A quarter less makes nobody a suspect. But hosts that differ so much may differ, and then none is too slow."""
    metric, speeds = METRIC["link to other hosts"], {"a": 1e3, "b": 500.0, "c": 1e3, "d": 750.0}

    def accused() -> list[str]:
        judged = judge(metric, {(host, ""): speed for host, speed in speeds.items()}, {})
        return [one.place[0] for one in judged if one.verdict == "error"]

    assert accused() == []
    disturbed = LinkTransfer(750.0, 0.0)
    found = {("a", "c"): LinkSpeed(1e3, 0.0, 1e3), ("c", "d"): LinkSpeed(750.0, 0.0, 1e3)}
    assert deciding(found, doubtful(found)) == [("c", "d")]
    assert unsure({("c", "d"): [disturbed], ("d", "c"): [LinkTransfer(1e3, 0.0)]}, ("c", "d"), 1e3) == [("c", "d")]
    speeds["d"] = 1e3
    assert accused() == ["b"]


def test_only_the_best_pair_of_a_suspect_is_measured_again() -> None:
    """Of the two slow pairs of `b` the one with a proven host counts; that `a` is slow with it says nothing any more."""
    fast, slow, slower = (LinkSpeed(speed, 0.0, 1e3) for speed in (1e3, 520.0, 500.0))
    found = {("a", "b"): slower, ("c", "d"): fast, ("c", "b"): slow, ("d", "a"): fast}
    assert deciding(found, doubtful(found)) == [("c", "b")]
    between = {("a", "b"): slow, ("c", "d"): fast, ("c", "b"): fast, ("d", "a"): fast}
    assert deciding(between, doubtful(between)) == [("a", "b")]  # whose hosts are proven: it is what lies between


def test_what_was_measured_three_times_with_one_result_is_not_measured_again() -> None:
    slow, again = LinkTransfer(500.0, 0.0), LinkTransfer(480.0, 0.0)
    assert [is_steady([slow, again]), is_steady([slow, again, slow])] == [False, True]
    assert not is_steady([slow, again, LinkTransfer(300.0, 0.0)])
    assert not is_steady([slow, again, LinkTransfer(500.0, 0.01)])
    assert is_steady([LinkTransfer(500.0, 0.01)] * 3)


def test_of_a_slow_pair_only_the_direction_that_looks_slow_is_measured_again() -> None:
    """Until it is slow for certain, or fast: what the other direction is changes nothing."""
    fast, slow, lost = LinkTransfer(1e3, 0.0), LinkTransfer(500.0, 0.0), LinkTransfer(1e3, 0.01)
    there, back = ("a", "b"), ("b", "a")
    assert unsure({there: [slow], back: [fast]}, there, 1e3) == [there]
    assert unsure({there: [fast], back: [slow]}, there, 1e3) == [back]
    assert unsure({there: [slow, fast], back: [fast]}, there, 1e3) == []
    assert unsure({there: [slow] * 2, back: [fast]}, there, 1e3) == [there]
    assert unsure({there: [slow] * 3, back: [slow]}, there, 1e3) == []
    assert unsure({there: [slow, slow, LinkTransfer(300.0, 0.0)], back: [fast]}, there, 1e3) == [there]
    assert unsure({there: [lost], back: [LinkTransfer(1e3, 0.003)]}, there, 1e3) == [there, back]
    assert unsure({there: [lost, LinkTransfer(1e3, 0.0)], back: [fast]}, there, 1e3) == [there]


def test_a_direction_that_loses_much_three_times_is_bad_however_fast_it_is() -> None:
    ways = {
        ("a", "b"): [LinkTransfer(speed, 0.01) for speed in (1e3, 600.0, 800.0)],
        ("b", "a"): [LinkTransfer(9e2, 0.01)],
    }
    assert unsure(ways, ("a", "b"), 1e3) == []
    lucky = {**ways, ("a", "b"): [*ways["a", "b"][:2], LinkTransfer(800.0, 0.001)]}
    assert unsure(lucky, ("a", "b"), 1e3) == [("a", "b"), ("b", "a")]


def test_a_pair_has_the_best_speed_of_each_direction_and_the_usual_loss_of_the_worse() -> None:
    forth = [LinkTransfer(900.0, 0.0), LinkTransfer(1000.0, 0.016), LinkTransfer(950.0, 0.0)]  # one moment of trouble
    back = [LinkTransfer(480.0, 0.012), LinkTransfer(500.0, 0.001), LinkTransfer(490.0, 0.009)]  # and one of luck
    assert LinkSpeed.of(forth, back) == LinkSpeed(500.0, 0.009, 1000.0)


# Sums.


def ring(size: int, adds: int | None = None, receives: int | None = None) -> dict[str, dict[str, str]]:
    """What hosts say of a sum; one of them adds wrongly, or receives other numbers than were sent to it."""
    said, before = {}, digest(0)
    for number in range(size):
        came = "other" if number == receives else before
        wrong = number == adds or came != digest(number)
        before = f"wrong {number}" if wrong else digest(number + 1)
        said[f"h{number}"] = {"came": came, "added": before}
    return {host: {**one, "sum": before} for host, one in said.items()}


@pytest.mark.parametrize("size", [2, 3, 8])
def test_the_host_that_adds_wrongly_is_named_and_no_other(size: int) -> None:
    hosts = [f"h{number}" for number in range(size)]
    assert list(wrong_sums(hosts, ring(size))) == []
    for number, host in enumerate(hosts):
        told = "added its numbers to those of other hosts, and the sum is wrong"
        assert list(wrong_sums(hosts, ring(size, adds=number))) == [(host, told)]
        if number:
            text = f"received other numbers than h{number - 1} sent it"
            assert list(wrong_sums(hosts, ring(size, receives=number))) == [(host, text)]
    last = ring(size)
    last["h0"]["sum"] = "other"
    assert list(wrong_sums(hosts, last)) == [("h0", f"received another sum from {hosts[-1]} than all others")]
