"""Hosts for tests: skipped with the reason where there can be none, unless JOBCTL_FLEET=required."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .fleet import Fleet
from .shared import leaves_hosts_as_they_were

__all__ = ["leaves_hosts_as_they_were"]  # a fixture


@pytest.fixture(scope="module")
def hosts(hosts_of: Callable[[int], Fleet]) -> Fleet:
    """Two hosts, which all tests of a worker share."""
    return hosts_of(2)
