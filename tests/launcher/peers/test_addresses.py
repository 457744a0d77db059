"""Where launchers find each other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.peers import addresses as peer_addresses
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.system.network import address_for
from tests.launcher.orders import order
from tests.tools.peer_links import links_of
from tests.tools.waiting import PROMPT, promptly


def test_a_name_that_is_known_later_than_its_order_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hosts begin at once after a power cut, and the name server is one of them: nobody would hear anybody for ever."""
    asked: list[str] = []
    real = peer_addresses.address_for

    def begins(made: Any, address: str, port: int) -> Any:
        asked.append(address)
        if len(asked) <= 2:
            raise OSError("Temporary failure in name resolution")
        return real(made, address, port)

    monkeypatch.setattr(peer_addresses, "address_for", begins)
    monkeypatch.setattr(peer_addresses, "ASKED_AGAIN", 0.0)
    second = links_of(tmp_path / "1", 1, order())
    members = [changed(one, address="localhost", port=second.addresses.port) for one in order().members]
    given = changed(order(), members=members)
    first = links_of(tmp_path / "0", 0, given)
    first.addresses.meet(given)
    assert first.peers == {}

    def is_heard() -> bool:
        first.next = 0.0
        first.attend()
        second.read_datagrams()
        return second.orders is not None and 0 in second.orders.heard

    promptly(is_heard)
    assert first.peers[1][1] == second.addresses.port
    for links in (first, second):
        links.addresses.close()


def test_a_name_server_that_is_silent_keeps_no_launcher_from_its_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses that are numbers are known at once, and a name has its last one, also in the next order."""
    answers = threading.Event()

    def silent(made: Any, address: str, port: int) -> Any:
        assert answers.wait(PROMPT)
        return address_for(made, address, port)

    monkeypatch.setattr(peer_addresses, "AT_FIRST", 0.0)
    monkeypatch.setattr(peer_addresses, "address_for", silent)
    links = links_of(tmp_path / "0", 0, order())
    places = {0: "localhost", 1: "localhost", 2: "127.0.0.9"}
    members = [changed(one, address=places[one.node], port=4000) for one in order().members]
    given = changed(order(), members=members)
    links.addresses.meet(given)
    assert set(links.peers) == {2}
    answers.set()

    def is_known() -> bool:
        links.addresses.look(None)
        return 1 in links.peers

    promptly(is_known)
    answers.clear()
    links.addresses.meet(given)
    assert set(links.peers) == {1, 2}
    answers.set()
    links.addresses.close()


def test_a_launcher_is_where_it_was_heard_until_its_name_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been started again, at another port."""
    found = ["127.0.0.2"]
    monkeypatch.setattr(peer_addresses, "AT_FIRST", PROMPT)
    monkeypatch.setattr(peer_addresses, "ASKED_AGAIN", 0.0)
    monkeypatch.setattr(peer_addresses, "address_for", lambda made, address, port: address_for(made, found[-1], port))
    links = links_of(tmp_path / "0", 0, order())
    addresses = links.addresses
    given = changed(order(), members=[changed(one, address="localhost", port=4000) for one in order().members])
    addresses.meet(given)
    met = links.peers[1]
    links.peers[1] = heard = (met[0], 4001, *met[2:])
    addresses.look(None)
    assert links.peers[1] == heard
    found.append("no such name")
    addresses.meet(given)  # in another order nobody can resolve it, and it is asked for again
    assert links.peers[1] == met
    found.append("127.0.0.3")

    def has_moved() -> bool:
        addresses.look(None)
        return links.peers[1] != met

    promptly(has_moved)
    addresses.close()
