"""What all tests share: the option that renews golden files, and the order in which they run."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.fleet.shared import can_have_fleet, hosts_of
from tests.tools.apiservers import full, mini

__all__ = ["can_have_fleet", "full", "hosts_of", "mini"]  # fixtures of several folders: hosts, real API servers

# An example takes as long as it takes: a machine that has others to serve may stand still in the middle of any.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


# No test uses the hosts that the person who runs it has configured.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="jobctl-no-configuration-")
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)
# `python3` in a job is the tests' own: a version manager's, which may come first, takes ten times as long to start.
os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")
    parser.addoption("--all", action="store_true", help="also run the tests that are left out unless a path names them")
    parser.addoption("--release", action="store_true", help="run what is marked `release`, and nothing else")


# Run only with --all, or where a path is given: what takes longer than five minutes altogether, and what it needs.
LEFT_OUT = {
    "fleet": "hosts with Docker Engines, as root",
    "cluster": "whole jobs in pods, as root",
    "slurm": "whole jobs in a real Slurm, as root",
    "examples": "every example, with each framework",
}
# Beside these, single tests are marked `long`. Of each framework one job trains in any run: local/test_minimal.py.
# The files that take longest, which a worker runs as a whole, then the folders whose files take longer than others'. Files
# that wait and files that compute are mixed: while one kind has all workers, cores are idle, or too busy.
LONGEST = (
    *("fleet/recovery/test_recovery.py", "local/test_paddle.py", "fleet/life/test_faults.py"),
    *("fleet/recovery/test_hot_spares.py", "launcher/etcd/test_etcd.py", "local/test_examples.py"),
    *("fleet/recovery/test_etcd.py", "slurm/test_limits.py", "local/test_mindspore.py"),
    *("fleet/files/test_data.py", "cluster/test_examples.py", "launcher/peers/test_lease.py"),
    *("local/test_standby.py", "fleet/life/test_life.py", "fleet/frameworks/test_mindspore.py"),
    *("cluster/test_none.py", "fleet/frameworks/test_paddle.py", "fleet/check/test_check.py"),
    *("fleet/campaign/test_campaign.py", "local/test_faults.py"),
)
LONG = ("examples", "fleet", "slurm", "launcher", "cluster", "local", "kube", "supervise")


def pytest_configure(config: pytest.Config) -> None:
    # A time limit ends a run as Ctrl-C does: what has failed so far is told, and no launcher of a test is left.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.addinivalue_line("markers", "long: a test that is left out unless --all is given, or a path")
    config.addinivalue_line(
        "markers", "release(test): played before a release, or if named by its id; `test` shows the same in every run"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long unless it is asked for, and put what takes longest first.

    A long file at the end would leave all workers but one idle.
    """
    rank = {name: number for number, name in enumerate((*LONGEST, *LONG))}

    @cache
    def place_of(file: Path) -> int:
        path = file.relative_to(Path(__file__).parent).as_posix()
        return rank.get(path, rank.get(path.partition("/")[0], len(rank)))

    def place(item: pytest.Item) -> int:
        return place_of(item.path)

    items.sort(key=place)
    out = {item for item in items if _is_left_out(item, config)}
    config.hook.pytest_deselected(items=[*out])
    items[:] = [item for item in items if item not in out]


def pytest_collection_finish() -> None:
    """Have no look for garbage pass over what was collected, and what that has imported: it stays to the end."""
    gc.freeze()


def _kind(item: pytest.Item) -> str:
    """Return the folder of `tests/` that a test is in, which is its kind: `deploy` also for what is in `deploy/slurm`."""
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _is_left_out(item: pytest.Item, config: pytest.Config) -> bool:
    marked = item.get_closest_marker("release") is not None
    if config.getoption("--release") or (marked and not _named_by_id(config)):
        return marked != config.getoption("--release")
    if config.getoption("--all") or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return False
    return _kind(item) in LEFT_OUT or item.get_closest_marker("long") is not None


def _named_by_id(config: pytest.Config) -> bool:
    """Say whether somebody asks for single tests."""
    return any("::" in argument for argument in config.args)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which tests were left out, and how to have them."""
    if not config.getoption("--release") and not _named_by_id(config):
        terminalreporter.write_line(
            "left out: tests that are marked `release`, each a variant of one that is not; `bash tests/run.sh --release` runs them"
        )
    if (
        config.getoption("--release")
        or config.getoption("--all")
        or config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    ):
        return
    terminalreporter.write_line(
        "left out: tests that are marked `long`: what frameworks do when something dies, deployers on real hosts, a browser, "
        "etcds, the launcher on the newest Python, larger models of the protocol"
    )
    for folder, what in LEFT_OUT.items():
        terminalreporter.write_line(f"left out: tests/{folder} ({what}); `bash tests/run.sh tests/{folder}` runs it")
    terminalreporter.write_line("`bash tests/run.sh --all` runs all but these variants")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Add what happened to the job of a test that failed, as `jobctl events` tells it."""
    report = yield
    jobs = getattr(item, "funcargs", {}).get("jobs")
    if report.when == "call" and report.failed and hasattr(jobs, "ok"):
        done = jobs.run("events")
        report.sections.append(("jobctl events", done.stdout + done.stderr))
    return report
