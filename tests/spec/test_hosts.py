"""The hosts file: what each line means."""

from __future__ import annotations

import pytest

from jobctl.jobspec.spec.hosts import Host, UnknownHost, choose, parse_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a\nb\n", [Host("a"), Host("b")]),
        ("ml@gpu[01-03]:22 slots=8", [Host(f"gpu0{i}", "ml", 22, slots=8) for i in (1, 2, 3)]),
        ("gpu05 addr=10.0.0.5 devices=0-3", [Host("gpu05", addr="10.0.0.5", devices=(0, 1, 2, 3))]),
        ("gpu06 spare", [Host("gpu06", spare=True)]),
        ("n[1-2] addr=10.0.0.[7-8]", [Host("n1", addr="10.0.0.7"), Host("n2", addr="10.0.0.8")]),
        ("r[1-2]n[1-2]", [Host("r1n1"), Host("r1n2"), Host("r2n1"), Host("r2n2")]),
        ("n[9-11,3]", [Host("n9"), Host("n10"), Host("n11"), Host("n3")]),
        ("n[08,9]", [Host("n08"), Host("n9")]),
        ("me@[fe80::1]:2222", [Host("fe80::1", "me", 2222)]),
        ("gpu01 addr=fd77::6", [Host("gpu01", addr="fd77::6")]),
        ("gpu01 addr=[fd77::6]", [Host("gpu01", addr="fd77::6")]),
        ("localhost", [Host("localhost")]),
    ],
)
def test_lines(text: str, hosts: list[Host]) -> None:
    loaded = parse_hosts(text, "hosts.txt")
    assert (list(loaded.hosts), loaded.diagnostics) == (hosts, ())


COMMENT = "a comment needs a space before its `#`"
BRACKETS = "brackets are for an IPv6 address, `[fd77::6]`, or a range, `name[01-16]`"
NUMBERS = "each of its four numbers is at most 255"


@pytest.mark.parametrize(
    ("text", "code", "message", "hint"),
    [
        (
            *("fd77::6", "bad-host", "`fd77::6` is an IPv6 address without brackets"),
            "an IPv6 address is written in brackets: `[fd77::6]`, with a port `[fd77::6]:22`",
        ),
        (
            *("me@fd77::6:22", "bad-host", "`fd77::6:22` is an IPv6 address without brackets"),
            "an IPv6 address is written in brackets: `[fd77::6:22]`, with a port `[fd77::6:22]:22`",
        ),
        (
            *("::1", "bad-host", "`::1` is an IPv6 address without brackets"),
            "an IPv6 address is written in brackets: `[::1]`, with a port `[::1]:22`",
        ),
        (
            *("gpu01 addr=10.0.0.1:2222", "bad-address", "`addr=10.0.0.1:2222` is not an address"),
            "`addr` is an address without a port: jobctl chooses the ports; SSH's stands behind the name, `gpu01:2222`",
        ),
        (
            *("gpu01 addr=[fd77::6]:2222", "bad-address", "`addr=[fd77::6]:2222` is not an address"),
            "`addr` is an address without a port: jobctl chooses the ports; SSH's stands behind the name, `gpu01:2222`",
        ),
    ],
)
def test_addresses_with_too_many_colons(text: str, code: str, message: str, hint: str) -> None:
    (found,) = parse_hosts(text, "hosts.txt").diagnostics
    assert (found.code, found.message, found.hint) == (code, message, hint)


@pytest.mark.parametrize(
    ("text", "code", "message", "hint"),
    [
        ("10.0.0.[255-256]", "bad-host", "`10.0.0.256` is not an IPv4 address", NUMBERS),
        ("gpu01 addr=10.0.0.256", "bad-address", "`10.0.0.256` is not an IPv4 address", NUMBERS),
        ("gpu01 spare=yes", "unknown-key", "`spare` takes no value", "write `spare` alone"),
        ("gpu01#old", "bad-host", "`gpu01#old` is not a host", COMMENT),
        ("gpu01 slots=8#of which two fail", "bad-value", "expected a number from 1 to 99999, found `8#of`", COMMENT),
        ("gpu01 slots=100000", "bad-value", "expected a number from 1 to 99999, found `100000`", None),
        ("me@[1:2]:22", "bad-host", "`1:2` is not an IPv6 address", BRACKETS),
    ],
    ids=["name", "addr", "flag", "comment", "value-comment", "large", "brackets"],
)
def test_what_no_host_can_have(text: str, code: str, message: str, hint: str | None) -> None:
    (found,) = parse_hosts(text, "hosts.txt").diagnostics
    assert (found.code, found.message, found.hint) == (code, message, hint)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a addr=10.0.0.1\nb addr=10.0.0.1\n", (2, 3), "`b` has the address 10.0.0.1 of `a` in line 1"),
        ("10.0.0.1\nb spare addr=10.0.0.1\n", (2, 9), "`b` has the address 10.0.0.1 of `10.0.0.1` in line 1"),
        ("a addr=10.0.0.1\n10.0.0.1\n", (2, 1), "`10.0.0.1` has the address 10.0.0.1 of `a` in line 1"),
        ("a addr=fd77::6\nb addr=fd77:0::6\n", (2, 3), "`b` has the address fd77:0::6 of `a` in line 1"),
        ("a addr=n1\nb addr=N1\n", (2, 3), "`b` has the address N1 of `a` in line 1"),
        ("localhost\nb addr=127.0.0.1\n", (2, 3), "`b` has the address 127.0.0.1 of `localhost` in line 1"),
        ("n[1-2] addr=10.0.0.[7,7]\n", (1, 8), "`n2` has the address 10.0.0.7 of `n1` beside it"),
    ],
)
def test_an_address_belongs_to_one_host(text: str, place: tuple[int, int], message: str) -> None:
    (found,) = parse_hosts(text, "hosts.txt").diagnostics
    assert (found.code, (found.span.line, found.span.column), found.message) == ("repeated-address", place, message)


def test_every_key() -> None:
    line = "10.0.0.1 interface=ib0 identity=~/.ssh/k docker=sudo dir=/data/jobctl nodes=2 roles=server,trainer"
    assert parse_hosts(line, "h").hosts == (
        Host(
            "10.0.0.1",
            interface="ib0",
            identity="~/.ssh/k",
            docker="sudo",
            dir="/data/jobctl",
            nodes=2,
            roles=("server", "trainer"),
        ),
    )


def test_comments_and_blank_lines() -> None:
    loaded = parse_hosts("# all\n\n  a   # first\r\n\tb\n", "h")
    assert [host.name for host in loaded.hosts] == ["a", "b"]


def test_localhost_is_this_machine() -> None:
    host, other = parse_hosts("localhost\nb", "h").hosts
    assert (host.local, host.address, other.local, other.address) == (True, "127.0.0.1", False, "b")


def test_thousands_of_hosts_are_quick() -> None:
    assert len(parse_hosts("n[00001-10000]", "h").hosts) == 10_000


@pytest.mark.parametrize(
    ("on", "exclude", "names"),
    [
        (None, None, "g1 g2 g3 x"),
        ("x,g1", None, "g1 x"),
        ("g[1-2],x", "g2", "g1 x"),
        (None, "g[1-3]", "x"),
        ("g[1,3]", None, "g1 g3"),
        ("x", "x", ""),
    ],
)
def test_a_choice_keeps_the_order_of_the_file(on: str | None, exclude: str | None, names: str) -> None:
    hosts = parse_hosts("g[1-3]\nx\n", "h").hosts
    assert " ".join(host.name for host in choose(hosts, on, exclude)) == names


@pytest.mark.parametrize(
    ("on", "hint"), [("gup1", "did you mean `gpu1`?"), ("g[", "letters, digits, `-` and `.`; a range is `name[01-16]`")]
)
def test_a_choice_of_nobody(on: str, hint: str) -> None:
    with pytest.raises(UnknownHost) as caught:
        choose(parse_hosts("gpu[1-3]\n", "h").hosts, on, None)
    assert (str(caught.value), caught.value.hint) == (f"there is no host `{on}` in the hosts file", hint)
