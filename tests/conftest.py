"""What all tests share: the option that renews golden files, and the order in which they run."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests.tools.apiservers import full, mini

__all__ = ["full", "mini"]  # fixtures of several folders: real API servers

# An example takes as long as it takes: a machine that has others to serve may stand still in the middle of any.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


# Real hosts, real frameworks, real processes: what takes minutes a file. All else takes seconds.
LONG = ("fleet", "examples", "cluster", "local", "launcher", "supervise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first: with two workers, a long file at the end would leave one of them idle."""
    rank = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(LONG)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Add what happened to the job of a test that failed, as `jobctl events` tells it."""
    report = yield
    jobs = getattr(item, "funcargs", {}).get("jobs")
    if report.when == "call" and report.failed and hasattr(jobs, "ok"):
        done = jobs.run("events")
        report.sections.append(("jobctl events", done.stdout + done.stderr))
    return report
