"""What `check` concludes from what was found out, and how containers meet."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.check import probe
from jobctl.jobspec.deploy.check.checks import OF_ONE
from jobctl.jobspec.deploy.check.comparisons import OF_ALL
from jobctl.jobspec.deploy.check.preflight import Preflight
from jobctl.jobspec.deploy.check.survey import CheckedHost, Survey
from jobctl.jobspec.deploy.host.facts import Facts
from jobctl.jobspec.deploy.model.engine_kind import EngineKind, engine_kind
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.plan.types import Node
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text
from tests.tools.ports import free_ports
from tests.tools.waiting import PROMPT


class Place:
    """As much of a Site as a comparison of hosts looks at."""

    def __init__(self, name: str) -> None:
        self.host = type("Host", (), {"name": name})


def reached(**unreached: dict[str, str] | None) -> list[tuple[str, str, str | None]]:
    """Return what is said of the hosts' network; None for a host whose container did not start."""
    seats = []
    for name, missing in unreached.items():
        probe = (
            None if missing is None else {"meet": {"listen": None, "taken": False, "port": 20001, "unreached": missing}}
        )
        seats.append(CheckedHost(cast(Any, Place(name)), (), probe=probe))
    found: list[Finding] = list(OF_ALL[0](Survey(None, seats), seats))
    return [(finding.host, finding.verdict, finding.message if finding.code else None) for finding in found]


def test_all_reach_all() -> None:
    assert reached(a={}, b={}) == [("a", "ok", None), ("b", "ok", None)]


def test_the_host_that_nobody_reaches_is_to_blame() -> None:
    gone = {"c": "timed out"}
    assert reached(a=gone, b=gone, c={}, d=gone) == [
        ("a", "ok", None),
        ("b", "ok", None),
        (
            "c",
            "error",
            "a cannot reach it (timed out), b cannot reach it (timed out), d cannot reach it (timed out)",
        ),
        ("d", "ok", None),
    ]


def test_the_host_that_reaches_nobody_is_to_blame() -> None:
    assert reached(a={"b": "no route", "c": "no route"}, b={}, c={}) == [
        ("a", "error", "it cannot reach b (no route), it cannot reach c (no route)"),
        ("b", "ok", None),
        ("c", "ok", None),
    ]


def test_of_two_hosts_apart_the_later_one_gives_way() -> None:
    assert reached(a={"b": "timed out"}, b={"a": "timed out"}) == [
        ("a", "ok", None),
        ("b", "error", "a cannot reach it (timed out), it cannot reach a (timed out)"),
    ]


def test_of_a_link_that_is_cut_one_way_the_end_that_is_not_reached_is_to_blame() -> None:
    assert reached(a={}, b={"a": "timed out"}) == [("a", "error", "b cannot reach it (timed out)"), ("b", "ok", None)]


def test_a_host_with_another_fault_hides_nobody() -> None:
    assert reached(a={"b": "refused"}, b=None, c={"b": "refused"}) == [("a", "ok", None), ("c", "ok", None)]


def nodes(text: str, framework: str = "paddle", line: str = "a slots=8") -> tuple[Node, ...]:
    """The nodes of a job on a host of eight devices."""
    base = f"name: job\nframework: {framework}\nscript: train.py\nimage: img\n"
    loaded = load_text(Path("/specs/job.yaml"), base + text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    hosts = parse_hosts(f"{line}\n", "hosts.txt").hosts
    return planner.plan(loaded.spec, hosts, Context("compose", "/specs", "me@here", "1.0")).nodes


@pytest.mark.parametrize(
    ("text", "seen", "driver", "said"),
    [
        ("devices: gpu\n", 8, None, ("ok", None, "8 of kind `gpu` in a container")),
        ("devices: gpu\n", 7, None, ("error", "devices-missing", "a container sees 7 of 8 devices of kind `gpu`")),
        ("devices: {kind: gpu, ids: '6,7'}\n", 2, None, ("ok", None, "2 of kind `gpu` in a container")),
        ("devices: gpu\n", 0, "no devices were found", ("error", "driver-broken", "no devices were found")),
        ("devices: cpu:2\n", 0, None, None),
    ],
)
def test_devices_of_a_node_against_what_its_container_got(text: str, seen: int, driver: str | None, said: Any) -> None:
    seat = CheckedHost(cast(Any, Place("a")), nodes(text), probe={"devices": seen, "driver": driver})
    (check,) = (check for check in OF_ONE if check.__name__ == "_devices")
    found = [(finding.verdict, finding.code, finding.message) for finding in check(Survey(None, [seat]), seat)]
    assert found == ([said] if said else [])


@pytest.mark.parametrize(
    ("text", "verdict", "probed"), [("devices: gpu\n", "error", False), ("devices: cpu:2\n", "warning", True)]
)
def test_a_driver_that_hangs_on_the_host(text: str, verdict: str, probed: bool) -> None:
    """A job on CPUs does not need it. A container with GPUs would hang, too."""
    seat = CheckedHost(cast(Any, Place("a")), nodes(text), facts=host(hangs="nvidia-smi"), image="sha256:1")
    (check,) = (check for check in OF_ONE if check.__name__ == "_driver")
    found = [(finding.check, finding.verdict, finding.code) for finding in check(Survey(None, [seat]), seat)]
    assert found == [("devices", verdict, "driver-broken")]
    assert Preflight([], None)._can_be_probed(seat) is probed


def host(**values: str) -> Facts:
    """What a host says of itself, as far as it matters here."""
    return Facts(0.0, values, {}, {}, frozenset(), {}, {})


@pytest.mark.parametrize(("address", "codes"), [("FD00:0::5", []), ("fd00::5", []), ("fd00::6", ["address-wrong"])])
def test_an_address_may_be_spelled_in_any_way(address: str, codes: list[str]) -> None:
    seat = CheckedHost(cast(Any, Place("a")), nodes("", "torch", f"a addr={address}"))
    seat.facts = Facts(0.0, {}, {"eth0": 1500}, {"10.0.0.5": "eth0", "fd00::5": "eth0"}, frozenset(), {}, {})
    (check,) = (check for check in OF_ONE if check.__name__ == "_interface")
    assert [finding.code for finding in check(Survey(None, [seat]), seat)] == codes


@pytest.mark.parametrize(("text", "codes"), [("", []), ("resources: {shm_size: 16g}\n", ["shm-large"])])
def test_only_a_cap_that_was_asked_for_is_too_large_for_a_host(text: str, codes: list[str]) -> None:
    seat = CheckedHost(cast(Any, Place("a")), nodes(text), facts=host(**{"memory-MemTotal:": str(8 << 20)}))
    (check,) = (check for check in OF_ONE if check.__name__ == "_room")
    assert [finding.code for finding in check(Survey(None, [seat]), seat)] == codes


ADDRESSES = {"a": "127.0.0.2", "b": "127.0.0.3"}


@pytest.mark.parametrize(
    ("framework", "text", "free", "said"),
    [
        ("torch", "devices: cpu:2\n", 8 << 20, "standby takes about 768 MiB of the 8192 MiB of memory that are free"),
        (
            "jax",
            "devices: cpu\n",
            1 << 17,
            "standby takes about 256 MiB of the 128 MiB of memory that are free: it will be off",
        ),
        ("torch", "devices: cpu\nrecovery: {standby: off}\n", 8 << 20, None),
        (
            "paddle",
            "devices: cpu\n",
            8 << 20,
            "standby takes about 512 MiB of the 8192 MiB of memory that are free",
        ),
        ("paddle", "devices: cpu\nmode: ps\nps: {servers: 1, trainers: 1}\n", 8 << 20, None),
    ],
)
def test_the_price_of_standby(framework: str, text: str, free: int, said: str | None) -> None:
    place = cast(Any, Place("a"))
    seat = CheckedHost(place, nodes(text, framework), facts=host(**{"memory-MemAvailable:": str(free)}))
    (check,) = [check for check in OF_ONE if check.__name__ == "_standby"]
    assert [finding.message for finding in check(Survey(None, [seat]), seat)] == ([said] if said else [])


def meeting(
    me: str, peer: str, ports: list[int], patience: float = 60.0, token: str = "t", tests: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    task = {
        "token": token,
        "kind": "cpu",
        "paths": [],
        "module": None,
        "tests": tests,
        "address": ADDRESSES[me],
        "ports": ports,
        "peers": [{"host": peer, "address": ADDRESSES[peer], "me": me}],
        "seconds": 0.2,
        "patience": patience,
    }
    text = Path(probe.__file__).read_text()
    # What is called may not get a core at once
    slow = text.replace("\nANSWER_TIMEOUT = 2.0", f"\nANSWER_TIMEOUT = {PROMPT}")
    assert slow != text
    return subprocess.Popen([sys.executable, "-c", slow, json.dumps(task)], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("address", "found"), [("fd77::6", "fd77::6"), ("10.0.0.6", None), ("", "fd77::6")])
def test_a_containers_own_name_may_have_an_address_of_ipv6(
    monkeypatch: pytest.MonkeyPatch, address: str, found: str | None
) -> None:
    def getaddrinfo(name: str, port: None, family: int) -> list[Any]:
        if family == socket.AF_INET:
            raise socket.gaierror
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd77::6", 0, 0, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert probe.resolves("job-0", address) == found


@pytest.fixture
def ports() -> list[int]:
    """Two ports that nobody has."""
    return free_ports(2)


def wait_for(address: str, port: int) -> None:
    """Wait until somebody listens."""
    while True:
        with socket.socket() as link:
            if link.connect_ex((address, port)) == 0:
                return
        time.sleep(0.05)


def met(process: subprocess.Popen[str]) -> Any:
    return json.loads(process.communicate()[0])["meet"]


def well(port: int) -> dict[str, Any]:
    return {"listen": None, "taken": False, "port": port, "unreached": {}}


def test_a_container_that_comes_late_is_waited_for(ports: list[int]) -> None:
    first = meeting("a", "b", ports)
    time.sleep(1.0)  # well beyond `seconds`: nobody listens there yet
    second = meeting("b", "a", ports)
    assert (met(first), met(second)) == (well(ports[0]), well(ports[0]))


def test_a_host_whose_framework_takes_long_to_import_is_not_cut_off(ports: list[int], tmp_path: Path) -> None:
    """Its image may be cold, or its driver slow to begin, for longer than others wait for it."""
    path = str(tmp_path / "imported")
    imports = f"import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.02)"
    quick, slow = meeting("a", "b", ports, 20.0), meeting("b", "a", ports, 20.0, tests=(imports,))
    assert met(quick) == well(ports[0])
    Path(path).touch()
    assert met(slow) == well(ports[0])


def test_a_container_that_never_comes_is_not_waited_for_for_ever(ports: list[int]) -> None:
    missing = met(meeting("a", "b", ports[:1], patience=0.5))["unreached"]
    assert missing == {"b": f"port {ports[0]}: Connection refused"}


def test_two_checks_at_once_do_not_take_each_other_for_theirs(ports: list[int]) -> None:
    """Both listen at one address; who comes second goes to the next port, and is found there."""
    first = {token: meeting("a", "b", ports, token=token) for token in "tu"}
    for port in ports:
        wait_for(ADDRESSES["a"], port)
    second = {token: meeting("b", "a", ports, token=token) for token in "tu"}
    found = [met(first[token]) for token in "tu"] + [met(second[token]) for token in "tu"]
    assert [(one["listen"], one["unreached"]) for one in found] == [(None, {})] * 4
    assert sorted(one["port"] for one in found[:2]) == sorted(ports)


def test_a_port_that_others_have_is_waited_for(ports: list[int]) -> None:
    with socket.create_server((ADDRESSES["a"], ports[0])):
        first = meeting("a", "b", ports[:1])
        second = meeting("b", "a", ports[:1])
        time.sleep(0.5)
    assert (met(first), met(second)) == (well(ports[0]), well(ports[0]))


def test_a_port_that_others_keep_is_not_the_fault_of_an_address(ports: list[int]) -> None:
    with socket.create_server((ADDRESSES["a"], ports[0])):
        found = met(meeting("a", "b", ports[:1], patience=0.5))
    assert (found["taken"], found["listen"]) == (True, "Address already in use")
    said = [(f.verdict, f.code) for f in verdicts("_listens", {"meet": found})]
    assert said == [("warning", "port-taken")]
    wrong = {"listen": "Cannot assign requested address", "taken": False, "port": None, "unreached": {}}
    assert [(f.verdict, f.code) for f in verdicts("_listens", {"meet": wrong})] == [("error", "address-wrong")]


def verdicts(check: str, probed: dict[str, Any]) -> list[Finding]:
    """Return what a check says of a host whose container has said this."""
    seat = CheckedHost(cast(Any, Place("a")), nodes("devices: cpu\n"), probe=probed)
    (found,) = (one for one in OF_ONE if one.__name__ == check)
    return list(found(Survey(None, [seat]), seat))


# Hosts against each other.


def compared(check: str, seats: list[CheckedHost]) -> list[tuple[str, str | None, str]]:
    (found,) = (one for one in OF_ALL if one.__name__ == check)
    return [(finding.host, finding.code, finding.message) for finding in found(Survey(None, seats), seats)]


def facts_of(skew: float = 0.0, **values: str) -> Facts:
    return Facts(skew, values, {}, {}, frozenset(), {}, {})


@pytest.mark.parametrize(
    ("skews", "said"),
    [
        ({"a": 0.0, "b": 0.4, "c": 0.8}, {}),
        ({"a": 5.0, "b": 0.0, "c": 0.1}, {"a": "its clock is 5.0 s ahead of that of most hosts"}),
        ({"a": 0.0, "b": 5.0, "c": 5.1}, {"a": "its clock is 5.0 s behind that of most hosts"}),
        ({"a": 0.0, "b": 5.0}, {"b": "its clock is 5.0 s ahead of this machine's"}),
        ({"a": 5.0, "b": 0.0}, {"a": "its clock is 5.0 s ahead of this machine's"}),
        ({"a": 0.0, "b": 0.4, "c": 0.8, "d": 9.4}, {"d": "its clock is 9.0 s ahead of that of most hosts"}),
        (
            {"a": 0.0, "b": 0.0, "c": -7.0, "d": -7.0},
            dict.fromkeys("cd", "its clock is 7.0 s behind this machine's"),
        ),
        ({"a": 8.0, "b": 4.0}, {"a": "its clock is 4.0 s ahead of that of others"}),
    ],
)
def test_the_few_whose_clock_differs_are_to_blame(skews: dict[str, float], said: dict[str, str]) -> None:
    seats = [CheckedHost(cast(Any, Place(name)), (), facts=facts_of(skew)) for name, skew in skews.items()]
    assert compared("_clocks", seats) == [(name, "clock-skew", text) for name, text in said.items()]


@pytest.mark.parametrize(
    ("images", "odd"), [("xy", {"h1": "y, and x"}), ("yx", {"h1": "x, and y"}), ("yxx", {"h0": "y, and x"}), ("xx", {})]
)
def test_of_images_as_frequent_that_of_the_first_host_counts_each_time(images: str, odd: dict[str, str]) -> None:
    seats = [CheckedHost(cast(Any, Place(f"h{number}")), (), image=image) for number, image in enumerate(images)]
    said = [(host, "image-differs", f"its image is {text} elsewhere") for host, text in odd.items()]
    assert compared("_images_alike", seats) == said


def test_two_names_of_one_machine() -> None:
    def seat(name: str, engine: str | None, boot: str, root: str = "/var/lib/docker") -> CheckedHost:
        told = engine_kind({"ID": engine, "DockerRootDir": root, "ServerVersion": "26.1.5"})
        return CheckedHost(cast(Any, Place(name)), (), facts=facts_of(boot=boot), engine=told)

    # c is a clone of a (the same engine's id), d another engine on the same machine, e and f cannot tell.
    seats = [seat("a", "X", "1"), seat("b", "X", "1"), seat("c", "X", "2"), seat("d", "X", "1", "/other")]
    seats += [seat("e", None, "1"), seat("f", "X", "")]
    text = "it is the same machine as a: both names lead to one Docker Engine"
    assert compared("_same_machine", seats) == [("b", "same-machine", text)]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (EngineKind("docker", "26.1.5", "layers"), ["Docker Engine 26.1.5 (image store: layers)"]),
        (EngineKind("docker", "29.0.1", "containerd"), ["Docker Engine 29.0.1 (image store: containerd)"]),
        (EngineKind("docker", "19.3.0", "layers"), ["engine-old"]),
        (
            EngineKind("docker", "26.1.5", "layers", rootless=True),
            ["Docker Engine 26.1.5 (image store: layers, rootless)", "engine-rootless", "engine-ends-with-session"],
        ),
        (
            EngineKind("podman", "4.3.1", "podman", selinux=True),
            ["Podman 4.3.1 (image store: Podman's, SELinux)", "engine-no-restart"],
        ),
        (EngineKind("podman", "5.8.0", "podman"), ["Podman 5.8.0 (image store: Podman's)"]),
        (EngineKind("podman", "3.4.4", "podman"), ["engine-old"]),
    ],
)
def test_what_the_engine_is(engine: EngineKind, said: list[str]) -> None:
    seat = CheckedHost(cast(Any, Place("a")), (), engine=engine)
    (check,) = (check for check in OF_ONE if check.__name__ == "_engine_version")
    assert [finding.code or finding.message for finding in check(Survey(None, [seat]), seat)] == said
