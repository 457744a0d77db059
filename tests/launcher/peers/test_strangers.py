"""What anybody can send to a launcher, or write where it reads: none of it ends the launcher."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.etcd.client import Etcd, EtcdError, text64
from jobctl.jobspec.launcher.etcd.keys import course_in
from jobctl.jobspec.launcher.order.launch import EtcdSettings
from jobctl.jobspec.launcher.peers.peers import PeerLinks
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.system.files import read_json
from jobctl.jobspec.launcher.system.processes import boot_time
from tests.launcher.orders import order
from tests.tools.peer_links import links_of

DEEP = "[" * 30000


@pytest.fixture
def links(tmp_path: Path) -> Iterator[tuple[PeerLinks, PeerLinks]]:
    made = links_of(tmp_path / "0", 0, order()), links_of(tmp_path / "1", 1, order())
    yield made
    for one in made:
        one.addresses.close()


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        '{"generation": "x", "node": Infinity}',
        '{"generation": "x", "node": 1e999}',
        '{"generation": "x", "node": 1, "part": [0, 1e999, 0]}',
        '{"generation": "x", "node": []}',
        "[]",
        "\udcff",
    ],
)
def test_a_datagram_that_no_launcher_sends_is_passed_over(links: tuple[PeerLinks, PeerLinks], text: str) -> None:
    first, second = links
    at = ("::1", first.addresses.port)
    second.socket.sendto(text.encode(errors="surrogateescape"), at)
    tick = second.lease.tick(boot_time())
    second.send(second.message(tick=tick), at)
    first.read_datagrams()
    assert first.orders is not None
    assert first.orders.heard[1].tick == tick


def test_what_is_nested_as_deep_as_can_be_read_is_not_repeated(links: tuple[PeerLinks, PeerLinks]) -> None:
    """An answer repeats the tick, and would have to be written deeper in the stack than the tick was read."""
    first, second = links
    tick = second.message(tick="t").to_json()
    for depth in range(1, 1200):
        text = json.dumps(tick).replace('"t"', "[" * depth + "]" * depth)
        second.socket.sendto(text.encode(), ("::1", first.addresses.port))
        first.read_datagrams()


@pytest.mark.parametrize(
    "idle",
    [
        {"generation": "x", "age": ["a"]},
        {"generation": "x", "age": [5.0, 0, "g0"], "tick": "no tick"},
        {"generation": "x", "age": [5.0, 0, "g0"], "tick": ["no tick"]},
        {"generation": {"x": "DEEP"}, "age": [5.0, 1, "g1"]},
    ],
)
def test_a_stranger_that_says_that_it_is_idle_keeps_no_launcher_from_the_next_order(
    links: tuple[PeerLinks, PeerLinks], idle: dict[str, Any]
) -> None:
    """What is remembered of an idle launcher is used once this one goes over to another order."""
    first, second = links
    said = json.dumps({"node": -1, "tick": "ab", "spare": "h9", **idle}).replace('"DEEP"', "[" * 300 + "]" * 300)
    second.socket.sendto(said.encode(), ("::1", first.addresses.port))
    second.send(second.message(tick=second.lease.tick(boot_time())), ("::1", first.addresses.port))
    first.read_datagrams()
    assert first.orders is not None
    assert (list(first.orders.spares), list(first.orders.heard)) == (["h9"], [1])
    mine = order()
    first.orders.adopt(changed(mine, number=2, rendezvous=changed(mine.rendezvous, id="g2")))
    second.read_datagrams()
    second.attend()
    assert second.orders is not None
    assert second.orders.order is not None
    assert second.orders.order.id == "g2"


def test_a_file_that_is_nested_too_deep_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(DEEP)
    assert read_json(str(tmp_path / "f")) is None


@pytest.mark.parametrize("text", [DEEP, "[]", "5", "no JSON"])
def test_what_etcd_does_not_say_is_an_error_of_etcd(text: str) -> None:
    answer = SimpleNamespace(status=200, reason="OK", read=text.encode)
    connection: Any = SimpleNamespace(request=lambda *asked: None, getresponse=lambda: answer)
    etcd = Etcd(EtcdSettings(["h:1"], "p"), None)
    with pytest.raises(EtcdError):
        etcd.exchange(connection, "/v3/kv/range", {})


def test_a_key_that_is_nested_too_deep_says_nothing_of_its_node() -> None:
    assert course_in({"value": text64(DEEP)}) is None
