"""Hosts for tests: skipped with the reason where there can be none, unless JOBCTL_FLEET=required."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.jobs import Jobs
from tests.fleet.shared import leaves_hosts_as_they_were

__all__ = ["leaves_hosts_as_they_were"]  # a fixture


@pytest.fixture(scope="module")
def hosts(hosts_of: Callable[[int], Fleet]) -> Fleet:
    """Two hosts, which all tests of a worker share."""
    return hosts_of(2)


@pytest.fixture
def jobs(tmp_path: Path, hosts: Fleet) -> Iterator[Jobs]:
    """A job for these hosts, of which `down` has to leave nothing."""
    made = Jobs(tmp_path, hosts)
    yield made
    down = made.run("down", *made.where)
    assert (down.returncode, made.containers(), made.files()) == (0, [[], []], []), down.stderr
