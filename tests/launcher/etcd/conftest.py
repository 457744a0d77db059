"""An etcd for the tests of this folder, and a node whose launcher keeps its lease there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.conftest import lose_power
from tests.tools.etcd import Etcd, etcd
from tests.tools.waiting import promptly

from .nodes import ALL, PREFIX, EtcdNode, end


@pytest.fixture
def nothing_outlives_a_test() -> Iterator[None]:
    """A test that fails leaves launchers behind."""
    yield
    for node in ALL:
        lose_power(node)
    ALL.clear()


@pytest.fixture(name="one", scope="module")
def one_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd of one member, for all tests that leave it alone."""
    with etcd(tmp_path_factory.mktemp("etcd") / "one") as cluster:
        yield cluster


@pytest.fixture(name="node")
def etcd_node(tmp_path: Path, python: str, one: Etcd) -> Iterator[EtcdNode]:
    """A node with that etcd, of which nothing is left afterwards."""
    made = EtcdNode(tmp_path, python, one)
    with made.supervisor:
        yield made
    end(made)
    promptly(lambda: one.keys(f"{PREFIX}/nodes/") == {})
    one.call("/v3/kv/deleterange", key="L2pvYmN0bC8=", range_end="L2pvYmN0bDA=")  # /jobctl/
