"""A sum by the collectives of the job's framework: right where hosts are healthy, and who makes it wrong."""

from __future__ import annotations

import glob
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.check.fitness import network_probe, probe
from jobctl.jobspec.deploy.check.fitness.framework_sum import FrameworkSum, framework_message, ranks_of
from jobctl.jobspec.deploy.check.fitness.session import ProbeSession, probe_source
from jobctl.jobspec.deploy.check.fitness.sums import PATTERN, Group, blamed, factor, is_sum
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.spec.frameworks import FRAMEWORKS
from tests.tools.frameworks import python_of


class Hosts:
    """Hosts of which some make each sum wrong in which they take part; `rounds` are the groups that have added up."""

    def __init__(self, *bad: str) -> None:
        self.bad, self.rounds = bad, list[list[Group]]()

    def add_up(self, groups: Sequence[Group]) -> dict[Group, list[str]]:
        self.rounds.append(list(groups))
        assert len({host for group in groups for host in group}) == sum(map(len, groups))
        return {group: list(group) if set(group) & set(self.bad) else [] for group in groups}


@pytest.mark.parametrize("size", [3, 4, 5, 8, 65])
def test_the_host_that_makes_the_sum_wrong_is_named_and_no_other(size: int) -> None:
    names = [f"h{number}" for number in range(size)]
    for name in names if size < 9 else (names[0], names[31], names[64]):
        hosts = Hosts(name)
        assert blamed(names, hosts.add_up) == [name]
        assert len(hosts.rounds) <= (5 if size == 3 else 3)


def test_two_of_them_are_both_named() -> None:
    names = [f"h{number}" for number in range(8)]
    for other in names[1:]:
        assert blamed(names, Hosts("h0", other).add_up) == ["h0", other]


def test_without_a_right_pair_any_host_may_be_to_blame() -> None:
    assert blamed(["a", "b"], Hosts("a").add_up) == ["a", "b"]
    assert blamed(["a", "b", "c"], Hosts("a", "b").add_up) == ["a", "b", "c"]
    assert blamed(["a", "b", "c", "d"], Hosts().add_up) == []


def test_the_sum_is_exact_in_floats_of_32_bits() -> None:
    total = sum(map(factor, range(100_000)))
    assert max(PATTERN) * total < 1 << 24
    assert is_sum([value * 15 for value in PATTERN], 5)
    assert not is_sum([*([15.0] * (len(PATTERN) - 1)), 14.0], 5)
    assert not is_sum(None, 5)


@pytest.mark.parametrize(
    ("kind", "ids", "nproc", "ranks"),
    [("cpu", None, 4, 1), ("gpu", (0, 1), 1, 2), ("npu", None, 8, 8), ("gpu", None, 0, 1)],
)
def test_a_rank_for_each_device(kind: str, ids: Any, nproc: int, ranks: int) -> None:
    assert ranks_of(node(kind, ids, nproc)) == ranks


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_framework_names_programs_that_are_there(name: str) -> None:
    from jobctl.jobspec.frameworks.programs import text_of

    programs = framework(name).programs
    assert "def measure(" in text_of(programs.devices)
    assert programs.sum is None or 'task["pattern"]' in text_of(programs.sum)
    assert (programs.sum is None) == (name == "jax")


# With real processes. What adds up is a framework only where the test says so.

PLAIN = """
import json, sys
task = json.load(sys.stdin)
print("the framework is noisy")
{how}
print(json.dumps({{"backend": "plain", "sum": found}}))
print("at its end, too")
"""
RIGHT = PLAIN.format(how="found = [v * sum(r % 13 + 1 for r in range(task['count'])) for v in task['pattern']]")


def node(kind: str = "cpu", ids: Any = None, nproc: int = 1) -> Any:
    container = SimpleNamespace(devices=SimpleNamespace(kind=kind, ids=ids))
    launch = SimpleNamespace(nproc=nproc, interface=None, interface_env=("GLOO_SOCKET_IFNAME",))
    return SimpleNamespace(role="trainer", container=container, launch=launch)


class Tampered(ProbeSession):
    """A host that gets another program than jobctl has sent."""

    change: tuple[str, str] = ("", "")

    def ask(self, what: str, patience: float, **task: Any) -> Any:
        if "program" in task:
            assert self.change[0] in task["program"]
            task["program"] = task["program"].replace(*self.change)
        return super().ask(what, patience, **task)


@contextmanager
def adding_up(
    program: str, names: str, python: str = sys.executable, **changes: tuple[str, str]
) -> Iterator[FrameworkSum]:
    """Let hosts that are all this machine add up; some get a changed program."""
    with ExitStack() as stack:
        sessions: dict[str, ProbeSession] = {}
        for name in names:
            channel = LocalTransport(name).dial([python, "-c", probe_source(), "token"])
            sessions[name] = (Tampered if name in changes else ProbeSession)(name, channel, "token")
            if name in changes:
                sessions[name].change = changes[name]  # type: ignore[attr-defined]
            stack.callback(sessions[name].close)
        seats: Any = {
            name: SimpleNamespace(nodes=[node()], host_job=SimpleNamespace(host=SimpleNamespace(address="127.0.0.1")))
            for name in names
        }
        yield FrameworkSum(sessions, seats, program)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    from jobctl.jobspec.deploy.check.fitness import framework_sum

    def use(text: str) -> None:
        monkeypatch.setattr(framework_sum, "text_of", lambda name: text)

    use(RIGHT)
    return use


def test_a_host_that_has_another_sum_is_told_in_pairs(plain: Any) -> None:
    with adding_up("plain", "abc", b=("found = [", "found = [1 + ")) as sums:
        found = list(sums.findings())
    assert [(one.host, one.check, one.verdict, one.code) for one in found] == [
        ("b", "collective", "error", "wrong-result")
    ]
    assert found[0].message == "a sum by plain is wrong with each host that it was tried with"


def test_of_two_hosts_both_are_named(plain: Any) -> None:
    with adding_up("plain", "ab", b=("found = [", "found = [1 + ")) as sums:
        assert [one.message for one in sums.findings()] == ["a sum by plain is wrong with a, b"] * 2


def test_what_is_wrong_only_once_is_told_of_the_hosts_that_had_it(plain: Any) -> None:
    once = ("found = [", "found = [(task['count'] == 3) + ")
    with adding_up("plain", "abc", c=once) as sums:
        (found,) = sums.findings()
    assert found.host == "c"
    assert found.message == "a sum over all hosts by plain was wrong, and in pairs of hosts it is right"


def test_hosts_that_cannot_add_up_accuse_nobody(plain: Any) -> None:
    with adding_up("plain", "abc", b=("found = [", "raise SystemExit('no gloo here')\nfound = [")) as sums:
        assert list(sums.findings()) == []
    right = Finding("a", "collective", "ok", "its part of a sum over 3 hosts is right")
    assert (
        framework_message(right, sums)
        == f"{right.message}; the framework's own collectives were not tried: b: no gloo here"
    )
    with adding_up("plain", "ab") as sums:
        assert list(sums.findings()) == []
    assert framework_message(right, sums) == f"{right.message}, by plain too"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ('noise\n{"sum": 1}\nmore', {"sum": 1}),
        ('{"level": "info"}\n{"sum": 1}\n{"level": "exit"}', {"sum": 1}),
        ("[1]\nTraceback\nValueError: no\n", {"error": "ValueError: no"}),
        ("", {"error": "it said nothing"}),
    ],
)
def test_what_a_rank_says_is_found_among_other_words(printed: str, said: dict[str, object]) -> None:
    assert probe.last(printed) == said


def test_a_rank_that_hangs_is_ended() -> None:
    task = {"program": "import time; time.sleep(600)", "inputs": [{}], "interface_env": [], "seconds": 0.3}
    (said,) = probe.ranks(task)["ranks"]
    assert said == {"error": "it did not end within 0 s"}


def test_the_interface_of_an_address_is_found_without_any_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert probe.interface(None, "127.0.0.1") == "lo"
    assert probe.interface("eth7", "127.0.0.1") == "eth7"
    told = "fd000000000000000000000000000005 03 40 00 80     eth3\n"
    monkeypatch.setattr(network_probe, "open", lambda _: io.StringIO(told), raising=False)
    assert probe.interface(None, "FD00:0::5") == "eth3"


def test_ranks_of_a_host_with_one_card_and_a_name_for_its_address_choose_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(glob, "glob", lambda _: ["/sys/class/net/eth5/device"])
    assert probe.only_card() == "eth5"  # whose speed is that of the host
    assert probe.interface(None, "gpu01") == ""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    program = "import json, os; print(json.dumps({'sum': os.environ.get('GLOO_SOCKET_IFNAME')}))"
    task = {
        "program": program,
        "inputs": [{}],
        "interface_env": ["GLOO_SOCKET_IFNAME"],
        "seconds": 60,
        "address": "gpu01",
    }
    assert probe.ranks(task)["ranks"] == [{"sum": None}]


def test_ranks_use_the_interface_that_the_user_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")  # by the image
    program = "import json, os; print(json.dumps({'sum': os.environ.get('GLOO_SOCKET_IFNAME')}))"
    task = {"program": program, "inputs": [{}], "interface_env": ["GLOO_SOCKET_IFNAME"], "seconds": 60}
    assert probe.ranks({**task, "interface": "ib0"})["ranks"] == [{"sum": "ib0"}]
    assert probe.ranks({**task, "interface": None, "address": "127.0.0.1"})["ranks"] == [{"sum": "eth0"}]


@pytest.mark.long
@pytest.mark.parametrize(("name", "backend"), [("torch", "gloo"), ("paddle", "gloo"), ("mindspore", "mccl")])
def test_each_framework_adds_up_by_its_own_collectives(name: Any, backend: str, tmp_path: Path) -> None:
    """One of the hosts has another part in the sum than it should, so that both have a wrong one."""
    python = sys.executable if name == "torch" else str(python_of(name))
    program = framework(name).programs.sum
    assert program is not None
    wrongly = ('task["factor"]', '(task["factor"] + 1)')
    with adding_up(program, "ab", python, b=wrongly) as sums:
        found = list(sums.findings())
    assert (sums.failed, sums.backend) == ([], backend)
    assert [(one.host, one.code) for one in found] == [("a", "wrong-result"), ("b", "wrong-result")]
