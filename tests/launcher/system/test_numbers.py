"""Addresses in place of the names of hosts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from jobctl.jobspec.launcher.node.idle_standby import own_address
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.system import network
from jobctl.jobspec.launcher.system.network import answers, free_port, in_numbers
from tests.launcher.orders import order
from tests.tools.waiting import PROMPT

PLACES = {0: "first", 1: "second", 2: "10.0.0.9"}


def named() -> Order:
    made = order()
    members = [changed(one, address=PLACES[one.node]) for one in made.members]
    return changed(made, members=members, rendezvous=changed(made.rendezvous, address="first"))


def addresses(found: Order) -> list[str]:
    return [found.rendezvous.address, *(member.address for member in found.members)]


def test_a_launcher_goes_on_hearing_others_while_names_are_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that is silent keeps a question for half a minute: without its ticks, the node would count as lost."""
    answers, asked = threading.Event(), threading.Event()

    def silent(name: str) -> str:
        asked.set()
        assert answers.wait(PROMPT)
        return {"first": "10.0.0.7", "second": "10.0.0.8"}[name]

    def pause(seconds: float) -> None:
        assert asked.wait(PROMPT)
        answers.set()

    monkeypatch.setattr(network, "AT_FIRST", 0.0)
    monkeypatch.setattr(network, "RESOLVING", PROMPT)
    monkeypatch.setattr(network, "number_of", silent)
    assert addresses(in_numbers(named(), pause)) == ["10.0.0.7", "10.0.0.7", "10.0.0.8", "10.0.0.9"]


def test_names_that_nobody_resolves_in_time_remain_names(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(network, "AT_FIRST", 0.0)
    monkeypatch.setattr(network, "RESOLVING", 0.0)
    monkeypatch.setattr(network, "number_of", lambda name: "10.0.0.7" if over.wait(PROMPT) else name)
    given = named()
    assert addresses(in_numbers(given, lambda seconds: None)) == addresses(given)
    over.set()


def test_a_name_that_means_this_machine_remains_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian gives a host's own name the address 127.0.1.1: every node would look for the first one on itself."""
    monkeypatch.setattr(network, "number_of", {"first": "127.0.1.1", "second": "10.0.0.8"}.get)
    assert addresses(in_numbers(named(), lambda seconds: None)) == ["first", "first", "10.0.0.8", "10.0.0.9"]


def test_addresses_that_are_numbers_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ask_aside", lambda *given: pytest.fail("no name server has to be asked"))
    members = [changed(one, address=f"fd00::{one.node + 1}") for one in order().members]
    given = changed(order(), members=members)
    assert in_numbers(given, lambda seconds: None) == given


class NameServer:
    """Tells that every name means this machine, once `answers` is set; never to the thread that has made it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, self.asked, self.main = threading.Event(), threading.Event(), threading.current_thread()
        monkeypatch.setattr(socket, "getaddrinfo", self.tell)

    def tell(self, name: str, port: Any, *how: Any) -> list[Any]:
        self.asked.set()
        assert threading.current_thread() is not self.main, "nobody hears the launcher meanwhile"
        assert self.answers.wait(PROMPT)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port or 0))]


def test_a_launcher_waits_for_no_name_server_before_it_begins_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would hear it meanwhile. A port of a host that is not found is as good as any other."""
    server = NameServer(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(network, "AT_FIRST", 0.0)
        assert free_port("first", port, port, port + 1) == port
        server.answers.set()
        monkeypatch.setattr(network, "AT_FIRST", PROMPT)
        assert free_port("first", port, port, port + 1) == port + 1


def test_a_launcher_waits_for_no_name_server_to_find_out_whether_a_server_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trainers look for the servers of the job time and again, for as long as these load."""
    server = NameServer(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        place = f"first:{listens.getsockname()[1]}"
        monkeypatch.setattr(network, "AT_FIRST", 0.0)
        assert not answers(place)
        server.answers.set()
        monkeypatch.setattr(network, "AT_FIRST", PROMPT)
        assert answers(place)
    assert not answers(place)


def test_an_idle_launcher_goes_on_telling_that_it_is_there_while_it_looks_for_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = NameServer(monkeypatch)

    def pause(seconds: float) -> None:
        assert server.asked.wait(PROMPT)
        server.answers.set()

    monkeypatch.setattr(network, "AT_FIRST", 0.0)
    monkeypatch.setattr(network, "RESOLVING", PROMPT)
    assert own_address("spare", named(), pause) == "127.0.0.1"
    server.answers.clear()
    monkeypatch.setattr(network, "RESOLVING", 0.0)
    with pytest.raises(OSError, match="the name first cannot be resolved"):
        own_address("spare", named(), pause)
    server.answers.set()


HAS_ADDRESSES = """
ip link set lo up
ip addr add 10.9.0.1/24 dev lo
ip addr add 10.9.0.2/24 dev lo label lo:1
ip link add other type veth peer name end
ip addr add fd00::9/64 dev other
exec "$@"
"""


@pytest.mark.skipif(os.getuid() != 0, reason="makes a network of its own, as root")
def test_an_interface_is_found_by_each_of_its_addresses() -> None:
    """By its second one too, and by one of IPv6: NCCL and gloo get its name."""
    script = "import sys; from jobctl.jobspec.launcher.system.network import interface_of as of; print(*map(of, sys.argv[1:]))"
    addresses = ["127.0.0.1", "10.9.0.1", "10.9.0.2", "fd00::9", "fd00:0::0009", "::1", "10.9.0.3", "host"]
    argv = ["unshare", "--net", "sh", "-ec", HAS_ADDRESSES, "sh", sys.executable, "-c", script, *addresses]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["lo", "lo", "lo", "other", "other", "lo", "None", "None"]
