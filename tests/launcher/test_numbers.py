"""Addresses in place of the names of hosts."""

from __future__ import annotations

import threading

import pytest

from jobctl.jobspec.launcher import network
from jobctl.jobspec.launcher.network import in_numbers
from jobctl.jobspec.launcher.order import Order
from jobctl.jobspec.launcher.records import changed
from tests.tools.waiting import PROMPT

from .test_peer_orders import order

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


def test_addresses_that_are_numbers_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ask_aside", lambda *given: pytest.fail("no name server has to be asked"))
    members = [changed(one, address=f"fd00::{one.node + 1}") for one in order().members]
    given = changed(order(), members=members)
    assert in_numbers(given, lambda seconds: None) == given
