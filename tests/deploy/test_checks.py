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

from jobctl.jobspec.deploy import probe
from jobctl.jobspec.deploy.checks import OF_ALL, OF_ONE
from jobctl.jobspec.deploy.findings import Finding, Seat, Survey
from jobctl.jobspec.plan.context import Context
from jobctl.jobspec.plan.types import Node
from jobctl.jobspec.planner import planner
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text


class Place:
    """As much of a Site as a comparison of hosts looks at."""

    def __init__(self, name: str) -> None:
        self.host = type("Host", (), {"name": name})


def reached(**unreached: dict[str, str] | None) -> list[tuple[str, str, str | None]]:
    """Return what is said of the hosts' network; None for a host whose container did not start."""
    seats = []
    for name, missing in unreached.items():
        probe = None if missing is None else {"meet": {"listen": None, "unreached": missing}}
        seats.append(Seat(cast(Any, Place(name)), (), probe=probe))
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


def test_a_host_with_another_fault_hides_nobody() -> None:
    assert reached(a={"b": "refused"}, b=None, c={"b": "refused"}) == [("a", "ok", None), ("c", "ok", None)]


def nodes(text: str) -> tuple[Node, ...]:
    """The nodes of a job on a host of eight devices."""
    base = "name: job\nframework: paddle\nscript: train.py\nimage: img\n"
    loaded = load_text(Path("/specs/job.yaml"), base + text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    hosts = parse_hosts("a slots=8\n", "hosts.txt").hosts
    return planner(loaded.spec, hosts, None, Context("compose", "/specs", "me@here", "1.0")).nodes


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
    seat = Seat(cast(Any, Place("a")), nodes(text), probe={"devices": seen, "driver": driver})
    (check,) = (check for check in OF_ONE if check.__name__ == "_devices")
    found = [(finding.verdict, finding.code, finding.message) for finding in check(Survey(None, [seat]), seat)]
    assert found == ([said] if said else [])


def meeting(me: str, peer: str, port: int, patience: float = 60.0) -> subprocess.Popen[str]:
    addresses = {"a": "127.0.0.2", "b": "127.0.0.3"}
    task = {
        "kind": "cpu",
        "paths": [],
        "module": None,
        "tests": [],
        "address": addresses[me],
        "port": port,
        "peers": [{"host": peer, "address": addresses[peer], "me": me}],
        "seconds": 0.2,
        "patience": patience,
    }
    return subprocess.Popen([sys.executable, probe.__file__, json.dumps(task)], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.2", 0))
        return int(free.getsockname()[1])


def met(process: subprocess.Popen[str]) -> Any:
    return json.loads(process.communicate()[0])["meet"]


def test_a_container_that_comes_late_is_waited_for(port: int) -> None:
    first = meeting("a", "b", port)
    time.sleep(1.0)  # well beyond `seconds`: nobody listens there yet
    second = meeting("b", "a", port)
    assert (met(first), met(second)) == ({"listen": None, "unreached": {}},) * 2


def test_a_container_that_never_comes_is_not_waited_for_for_ever(port: int) -> None:
    assert met(meeting("a", "b", port, patience=0.5)) == {"listen": None, "unreached": {"b": "Connection refused"}}
