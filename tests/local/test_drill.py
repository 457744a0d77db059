"""Failures rehearsed: what is killed, how long it takes to go on, and whether it went on from its checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobctl.jobspec.operations.lifecycle.drill import _continued
from tests.tools.waiting import eventually


@pytest.fixture
def running(jobs: Any) -> Any:
    """A job that has made 120 steps, and would make many more."""
    jobs.set(STEPS="10000", DELAY="0.05")
    jobs.ok("up")
    eventually(lambda: all((node["progress"] or 0) >= 120 for node in jobs.status()["nodes"]))
    return jobs


def test_the_job_goes_on(running: Any) -> None:
    for number, (victim, *option) in enumerate((("process",), ("container", "--container")), 1):
        done = running.run("drill", "--yes", "--node", "0", *option, "-o", "json")
        report = json.loads(done.stdout)
        seconds = report.pop("seconds")
        before, after, continued = report.pop("before"), report.pop("after"), report.pop("continued")
        # Where nobody has looked for a second, it cannot be told from the steps alone; but never that it began anew.
        about = {"job": "counter", "victim": victim, "node": 0, "host": "localhost", "generation": number}
        assert report == {**about, "detected_by": "supervisor"}
        assert (done.returncode, before >= 120, after >= 120, continued is not False) == (0, True, True, True)
        assert 0 <= seconds["detected"] <= seconds["stopped"] <= seconds["running"] <= seconds["training"]
        state = running.status()
        assert (state["phase"], state["generation"]) == ("running", number + 1)


@pytest.mark.long
def test_a_job_that_begins_anew_is_told(running: Any) -> None:
    script = running.directory / "counter.py"
    script.write_text(script.read_text().replace("os.path.exists(kept)", "False"))
    running.ok("up")
    eventually(lambda: all((node["progress"] or 0) >= 120 for node in running.status()["nodes"]))
    done = running.run("drill", "--yes")
    told = done.returncode, "error: training began from the beginning: step " in done.stderr
    unseen = done.returncode, "it cannot be told where it went on" not in done.stderr  # nobody has looked for a second
    assert told == (1, True) or unseen == (0, False), done.stderr


@pytest.mark.parametrize(
    ("before", "after", "unseen", "continued"),
    [
        (120, 121, 24.0, True),
        (120, 26, 24.0, True),
        (120, 25, 24.0, False),
        (25, 25, 24.0, None),
        (120, 121, 264.0, None),
        (None, 5, 24.0, None),
        (120, None, 24.0, None),
    ],
)
def test_what_steps_tell(before: int | None, after: int | None, unseen: float, continued: bool | None) -> None:
    assert _continued(before, after, unseen) is continued


def test_a_job_that_does_not_survive(jobs: Any) -> None:
    jobs.set(STEPS="10000", DELAY="0.05")
    spec = jobs.directory / "job.yaml"
    spec.write_text(spec.read_text() + "recovery: {max_restarts: 0}\n")
    jobs.ok("up")
    done = jobs.run("drill", "--yes")
    assert (done.returncode, "error: job `counter` failed: " in done.stderr) == (1, True), done.stderr
    assert "it did not survive the drill" in done.stderr


@pytest.mark.long
def test_what_it_needs(jobs: Any) -> None:
    jobs.set(STEPS="10000", DELAY="0.02")
    assert jobs.run("drill", "--yes").stderr.startswith("error: job `counter` is stopped: a drill needs one that runs")
    jobs.ok("up", "--no-supervise")
    assert jobs.run("drill", "--yes").stderr.startswith("error: job `counter` has no supervisor")
    jobs.ok("up")
    before = jobs.status()["generation"]
    assert jobs.run("drill").stderr.startswith("error: a drill breaks a job on purpose, and asks before")
    assert jobs.run("drill", "--yes", "--node", "7").returncode == 2
    assert jobs.status()["generation"] == before
