"""The hosts that all tests of a worker share: more of them once a test needs more, and whole again after each test.

To make a host takes a few seconds, of which most are its engine's. A test that leaves a host in another state than it
found it in fails, and the host is made again, so that no other test fails in its place.
"""

from __future__ import annotations

import copy
import http.client
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet import engine
from tests.fleet.fleet import Fleet, fleet
from tests.fleet.host import USER, Host
from tests.fleet.machine import missing, sh
from tests.tools.frameworks import RECIPES, lent_packages

SETTLES = 60.0  # seconds within which what ends by itself has ended

State = dict[str, object]


class Shared:
    """A fleet that grows."""

    def __init__(self, made: Fleet) -> None:
        self.fleet = made
        self.whole: dict[str, State] = {}  # by the name of the host, or "" for what all have in common
        self.daemons: dict[str, set[str]] = {}  # those that a fixture of a module has started on hosts

    def first(self, size: int) -> Fleet:
        """Return a fleet of the first `size` hosts."""
        more = self.fleet.grow(size)
        view = copy.copy(self.fleet)
        view.hosts = self.fleet.hosts[:size]
        self.fleet.write_ssh_config()
        for host in more:
            self.whole[host.name] = state_of(host)
        self.whole[""] = state_between(self.fleet)
        return view

    def begin(self) -> None:
        """Remember what runs on the hosts before a test."""
        self.daemons = {host.name: set(daemons(host)) for host in self.fleet.hosts}

    def left(self, settles: float = SETTLES) -> list[str]:
        """Return what is not as it was, after having waited for what ends by itself."""
        deadline = time.monotonic() + settles
        while (found := self._differences()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _differences(self) -> list[str]:
        states = {host.name: state_of(host, self.daemons.get(host.name, set())) for host in self.fleet.hosts}
        states[""] = state_between(self.fleet)
        return [
            f"{name or 'the fleet'}: {what} is {value}, was {self.whole[name][what]}"
            for name, state in states.items()
            for what, value in state.items()
            if value != self.whole[name][what]
        ]

    def put_back(self, differences: list[str]) -> None:
        """Make again what is not as it was."""
        broken = {line.partition(":")[0] for line in differences}
        self.fleet.connect()
        for host in self.fleet.hosts:
            if host.name in broken:
                self.fleet.renew(host)
        self.fleet.write_ssh_config()
        self.whole = {host.name: state_of(host) for host in self.fleet.hosts}
        self.whole[""] = state_between(self.fleet)


def daemons(host: Host) -> list[str]:
    """Return the names of the daemons that run."""
    return sorted(name for name, process in host.processes.items() if process.poll() is None)


def state_of(host: Host, known: set[str] = frozenset()) -> State:  # type: ignore[assignment]
    """Return what a test may have changed of a host, but for daemons that were there before."""
    link = sh("ip", "-n", host.namespace, "-o", "link", "show", "eth0", check=False)
    flags = Path(f"/sys/class/net/{host.cable}/flags")
    try:
        held: object = host.socket.exists() and (engine.containers(host.socket), engine.images(host.socket))
    except (OSError, http.client.HTTPException) as error:
        held = f"not known: {error}"
    return {
        "what runs": sorted({*daemons(host)} - (known - {"sshd", "dockerd"})),
        "how its sshd is": (host.sshd_options, host.behind, host.skew, host.called),
        "its disk": host.disk,
        "its cable": flags.exists() and bool(int(flags.read_text(), 16) & 1),
        "its link": re.findall(r"mtu \d+|qdisc \w+", link),
        "what its engine has": held,
        "its docker": (host.compose, sorted(path.readlink() for path in (host.dir / "bin").iterdir())),
        "its names": (host.dir / "etc" / "hosts").read_text(),
        "its files": files(host),
    }


def files(host: Host) -> list[str]:
    """Return what lies in the homes, but for the folder that jobctl keeps, which may be empty."""
    homes = (host.home, host.dir / USER)
    found = [path for home in homes for path in home.rglob("*") if path != home / ".jobctl"]
    return sorted(str(path.relative_to(host.dir)) for path in found)


def state_between(made: Fleet) -> State:
    """Return what a test may have changed of a fleet as a whole."""
    known = (made.dir / "known_hosts").read_text().splitlines()
    return {
        "the controller's address": f" 10.{made.network}.0.254/" in sh("ip", "-o", "addr", "show", "dev", made.bridge),
        "what is not routed": sh("ip", "route", "show", "type", "blackhole").count(f"10.{made.network}."),
        "who is known by another key": [host.name for host in made.hosts if host.host_key() not in known],
        "the ssh configuration": made.ssh_config.read_text(),
        "the small disk": [path.name for path in made.small.iterdir()],
    }


_made: list[Shared] = []


@pytest.fixture(scope="session")
def can_have_fleet() -> None:
    """Skip where there can be no hosts."""
    problem = missing()
    if problem:
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)


@pytest.fixture(scope="session")
def hosts_of(can_have_fleet: None) -> Iterator[Callable[[int], Fleet]]:
    """Return a fleet of as many hosts as are asked for. They are lent the packages of every framework that is there."""
    with fleet(0, lends=lent_packages(*RECIPES)) as made:
        _made.append(Shared(made))
        try:
            yield _made[0].first
        finally:
            _made.clear()


@pytest.fixture(autouse=True)
def leaves_hosts_as_they_were(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if a test leaves a host in another state than it was in."""
    if "hosts_of" not in request.fixturenames:
        yield
        return
    if _made:
        _made[0].begin()
    yield
    for one in _made:
        if found := one.left():
            one.put_back(found)
            pytest.fail("\n".join(["the test has left hosts in another state; they are made again", *found]))
