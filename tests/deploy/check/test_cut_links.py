"""Links between hosts that carry nothing: whom a fitness check accuses of that."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from jobctl.jobspec.deploy.check.fitness.effort import EFFORTS
from jobctl.jobspec.deploy.check.fitness.network import CALL, HostNetwork
from jobctl.jobspec.deploy.model.errors import HostError


class Hosts:
    """The probes of hosts; nothing reaches those that are `closed`."""

    def __init__(self, size: int, closed: Collection[str]) -> None:
        self.names = [f"h{number}" for number in range(size)]
        self.closed = closed
        self.sums: list[str] = []
        self.hangs, self.waited = "", 0.0

    def network(self) -> HostNetwork:
        sessions: Any = {name: Probe(self, name) for name in self.names}
        addresses, machines = {name: name for name in self.names}, [[name] for name in self.names]
        return HostNetwork(sessions, addresses, machines, EFFORTS["quick"], "word")


class Probe:
    """The probe of one host, by which a host that calls another one in vain is the one that says so, as it is in truth."""

    def __init__(self, hosts: Hosts, name: str) -> None:
        self.hosts, self.name = hosts, name
        self.broken = False

    def ask(self, what: str, patience: float, **task: Any) -> dict[str, Any]:
        if what == "send" and self.name == self.hosts.hangs:
            self.broken = True
        if self.broken:
            self.hosts.waited += patience
            raise HostError(self.name, "silent", f"no answer within {patience:g} s while `{what}` was measured")
        if what == "send" and task["to"] in self.hosts.closed:
            raise HostError(self.name, "command-failed", "cannot measure `send`: TimeoutError: timed out")
        if what == "reduce":
            self.hosts.sums.append(self.name)
        sent, got = {"again": 0, "sent": 100, "rate": 0}, {"bytes": 10**8, "seconds": 1.0}
        return {"port": 20000, **sent, **got, "waited": 0.0, "worked": 0.0}


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_the_host_that_nobody_reaches_is_to_blame_and_not_who_called_it(size: int) -> None:
    for closed in Hosts(size, ()).names:
        hosts = Hosts(size, {closed})
        network = hosts.network()
        network.measure()
        assert set(network.failed) == {closed}
        network.add_up()
        assert sorted(hosts.sums) == [name for name in hosts.names if name != closed]


def test_it_is_said_which_links_carry_nothing() -> None:
    network = Hosts(3, {"h1"}).network()
    network.measure()
    error = network.failed["h1"]
    assert isinstance(error, HostError)
    why = "cannot measure `send`: TimeoutError: timed out"
    assert error.code == "unreachable-peers"
    assert error.cause == f"h0 cannot send to it ({why}), h2 cannot send to it ({why})"


def test_a_probe_that_hangs_is_waited_for_once() -> None:
    hosts = Hosts(8, ())
    hosts.hangs = "h3"
    network = hosts.network()
    assert set(network.measure()) == set(hosts.names) - {"h3"}
    network.add_up()
    assert (hosts.waited, str(network.failed["h3"])) == (CALL, "h3: no answer within 90 s while `send` was measured")
    assert (set(network.failed), sorted(hosts.sums)) == ({"h3"}, [name for name in hosts.names if name != "h3"])
