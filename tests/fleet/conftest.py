"""A fleet for tests: skipped with the reason where there can be none, unless JOBCTL_FLEET=required."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .fleet import Fleet, fleet
from .machine import missing


@pytest.fixture(scope="session")
def can_have_fleet() -> None:
    problem = missing()
    if problem:
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)


@pytest.fixture(scope="module")
def hosts(can_have_fleet: None) -> Iterator[Fleet]:
    """Two hosts, whole again after each module."""
    with fleet(2) as made:
        yield made
