"""Which hosts a check of links and sums names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jobctl.jobspec.deploy.check.fitness.links import (
    LinkSpeed,
    Pair,
    apart,
    by_host,
    doubtful,
    lossy,
    measure_links,
    slow_pairs,
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
    assert apart(doubtful(found)) == [[("a", "b")], [("a", "c"), ("d", "b")]]


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
