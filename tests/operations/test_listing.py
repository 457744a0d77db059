"""Jobs that are known here are looked at side by side: those whose hosts are silent delay no other."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.inspect import listing
from jobctl.jobspec.operations.inspect.listing import known_jobs
from jobctl.jobspec.operations.inspect.metrics import MetricsSource
from jobctl.jobspec.operations.targets import table
from tests.tools.waiting import PROMPT

# A command ends in the middle of looks at three jobs whose hosts are silent.
ENDS = """
import threading
from types import SimpleNamespace
from jobctl.jobspec.operations.inspect.metrics import MetricsSource
from jobctl.jobspec.operations.serve.ui_data import UiData
from jobctl.jobspec.operations.targets import table

looks = threading.Semaphore(0)

def observe():
    looks.release()
    threading.Event().wait()

table.known_handle = lambda directory: SimpleNamespace(observe=observe, close=lambda: None)
"""
METRICS = "source = MetricsSource(None, live=True)\nlook = source.text\n"
UI = "source = UiData()\nlook = source.jobs\n"
END = """
threading.Thread(target=look, daemon=True).start()
for _ in range(3):
    looks.acquire()
source.close()
"""
SEEN = Observed(NOTHING, (), supervised=None, verdict=("running", None))
NAMES = ("first", "second", "third")


class Jobs:
    """Three jobs, of which no look ends before all are under way; the host of the second is silent."""

    def __init__(self) -> None:
        self.together = threading.Barrier(3)
        self.made: list[tuple[str, bool]] = []  # handles, and whether the thread that lists made them

    def handle(self, directory: JobDir) -> Any:
        self.made.append((directory.name, threading.current_thread() is threading.main_thread()))
        return SimpleNamespace(job=directory, observe=lambda: self._observe(directory.name), close=lambda: None)

    def _observe(self, name: str) -> Observed:
        self.together.wait(PROMPT)
        if name == "second":
            raise AllUnreachable({"gpu01": HostError("gpu01", "silent", "it does not answer")}, SEEN)
        return SEEN


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    found = Jobs()
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(table, "known_handle", found.handle)
    for name in NAMES:
        job = JobDir(tmp_path / "jobs" / name)
        job.create()
        (job.root / "job.json").write_text(json.dumps({"target": "ssh", "spec": None}))
    return found


def test_jobs_are_listed_side_by_side_and_in_order(jobs: Jobs) -> None:
    """What they are reached through is made in turn: a plugin of a kubeconfig may ask a person for something."""
    assert [(job.name, job.answered) for job in known_jobs()] == [("first", True), ("second", False), ("third", True)]
    assert jobs.made == [(name, True) for name in NAMES]


@pytest.mark.parametrize("live", [False, True])
def test_metrics_look_at_jobs_side_by_side(jobs: Jobs, *, live: bool) -> None:
    source = MetricsSource(None, live=live)
    observed = [line for line in source.text().splitlines() if line.startswith("jobctl_observed{")]
    source.close()
    assert observed == [f'jobctl_observed{{job="{name}"}} {int(name != "second")}' for name in NAMES]


@pytest.mark.usefixtures("jobs")
def test_a_list_that_is_interrupted_begins_no_more_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look at a time: the second one goes on as the list is given up after the first, and the third one waits."""
    seen, goes_on, given_up = list[str](), threading.Event(), threading.Event()

    def observe(name: str) -> Observed:
        if "first" in seen:
            goes_on.set()
            assert given_up.wait(PROMPT)
        seen.append(name)
        return SEEN

    def wait(looks: Sequence[Future[object]]) -> None:
        given_up.set()
        futures.wait(looks)

    monkeypatch.setattr(listing, "MAX_LOOKS", 1)
    monkeypatch.setattr(listing, "wait", wait)
    monkeypatch.setattr(
        table,
        "known_handle",
        lambda directory: SimpleNamespace(observe=lambda: observe(directory.name), close=lambda: None),
    )
    known = listing.KnownJobs()
    found = known.look_at_all(known.directories())
    next(found)
    assert goes_on.wait(PROMPT)
    found.close()
    assert sorted(seen) in (["first", "second"], ["first", "third"])


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("looks", [METRICS, UI], ids=["metrics", "ui"])
def test_a_server_that_ends_waits_for_no_look(looks: str) -> None:
    """Hosts that are silent would keep it for seconds; these are silent for ever."""
    subprocess.run([sys.executable, "-c", ENDS + looks + END], check=True, timeout=PROMPT)
