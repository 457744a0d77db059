"""The history of jobs that are down: `list --all` shows it, `prune` removes it, and nothing else."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store import events, lock
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.lifecycle.prune import PruneRequest, find_prunable, prune

DAY = 86400.0
NOW = time.time()


def past(name: str, days: float = 1.0, *, last: str = "down", **ending: Any) -> JobDir:
    """Make the history of a job whose last event is so many days old."""
    job = JobDir(Path("state/jobs").absolute() / name)
    job.create()
    events.record(job.events, NOW - days * DAY - 60, "up", "up: torch", framework="torch", target="ssh", fresh=False)
    events.record(job.events, NOW - days * DAY - 30, "step", "start node 0", by="up")
    if last != "step":
        events.record(job.events, NOW - days * DAY, last, "job taken down", **{"failed": [], **ending})
    log = job.history / "2026-01-31T14-00-00Z" / "node-0" / "logs" / "workerlog.0"
    log.parent.mkdir(parents=True)
    log.write_text("step 1\n")
    return job


@pytest.fixture
def histories(jobctl: Any, tmp_path: Path) -> Any:
    """Two jobs that are down, and one of each kind that is not, or not for certain."""
    past("ended", 40, phase="succeeded", reason=None)
    past("recent", 2)
    past("half", failed=["gpu02"])
    past("crashed", last="step")
    (past("is-up").root / "job.json").write_text('{"target": "local", "spec": null}')
    (past("at-work").root / "pending.json").write_text("{}")
    past("local").host.mkdir()
    outputs = past("fetched").history / "2026-01-31T14-00-00Z" / "outputs" / "gpu01"
    outputs.mkdir(parents=True)
    (outputs / "scalars.csv").write_text("1,2\n")
    return jobctl


def left() -> set[str]:
    return {path.name for path in Path("state/jobs").iterdir()}


EVERY = {"ended", "recent", "half", "crashed", "is-up", "at-work", "local", "fetched"}


def test_prune_removes_what_is_down_for_certain_and_nothing_else(histories: Any) -> None:
    ran = histories("prune", "--yes", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, [job["job"] for job in document["jobs"]]) == (0, ["ended", "recent"])
    assert left() == EVERY - {"ended", "recent"}
    reasons = {kept["job"]: kept["reason"].partition(";")[0] for kept in document["kept"]}
    assert reasons == {
        "half": "something of it is left on gpu02",
        "crashed": "its history does not say that it was taken down",
        "at-work": "its pending.json is still there",
        "local": "its work directory is still there",
        "fetched": f"outputs that `down` fetched are in {Path('state/jobs/fetched/history').absolute()}",
    }
    assert (Path("state/jobs/is-up/history")).exists()


@pytest.mark.parametrize("by", ["this machine", "a host"])
def test_a_clock_that_was_ahead_while_a_job_ran_does_not_hide_its_end(jobctl: Any, by: str) -> None:
    job = JobDir(Path("state/jobs/ahead").absolute())
    begun = {"generation": 1} if by == "this machine" else {"generation": 1, "id": "1 0 generation-begun"}
    events.record(job.events, NOW + DAY, "up", "up: torch", framework="torch", target="ssh", fresh=False)
    events.record(job.events, NOW + DAY, "generation-begun", "generation 1 was started cold", **begun)
    events.record(job.events, NOW - 60, "down", "job taken down", failed=[], phase="succeeded", reason=None)
    events.record(job.events, NOW - 90, "generation-begun", "what is collected late", generation=1, id="1 1 moved")
    assert [event["event"] for event in events.read(job.events)[0]][-1] == "down"
    (listed,) = json.loads(jobctl("list", "--all", "-o", "json").out)
    assert (listed["down"], listed["framework"], listed["phase"]) == (True, "torch", "succeeded")
    assert jobctl("prune", "--yes").code == 0
    assert left() == set()


def test_a_job_that_came_up_by_a_clock_that_was_set_back_is_not_down(jobctl: Any) -> None:
    job = past("again")
    events.record(job.events, NOW - 2 * DAY, "up", "up: torch", framework="torch", target="ssh", fresh=False)
    events.record(
        job.events, NOW - 2 * DAY, "generation-begun", "started cold", generation=1, id="1 0 generation-begun"
    )
    assert jobctl("prune", "--yes").code == 0
    assert left() == {"again"}


def test_who_lost_the_lock_on_the_way_removes_nothing(histories: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stopped by Ctrl-Z, say, and another command is about to bring the job up."""
    monkeypatch.setattr(
        "jobctl.jobspec.operations.lifecycle.prune._is_still_down", lambda past: lock.break_lock(past.job.lock) is None
    )
    ran = histories("prune", "--yes", "ended")
    assert ("the lock on this machine was lost" in ran.err, ran.code, left()) == (True, 3, EVERY)


@pytest.mark.parametrize(
    ("options", "removed"),
    [
        (("--older-than", "30d"), {"ended"}),
        (("--older-than", "50d"), set()),
        (("recent",), {"recent"}),
        (("--outputs",), {"ended", "recent", "fetched"}),
        (("--dry-run",), set()),
        (("half",), set()),
    ],
)
def test_what_is_removed_can_be_chosen(histories: Any, options: tuple[str, ...], removed: set[str]) -> None:
    assert histories("prune", "--yes", *options).code == 0
    assert left() == EVERY - removed


def test_prune_asks_before_and_says_what_it_would_do(histories: Any) -> None:
    ran = histories("prune")
    assert (ran.code, left()) == (2, EVERY)
    assert [line.split()[:2] for line in ran.out.splitlines()] == [
        ["JOB", "PHASE"],
        ["ended", "succeeded"],
        ["recent", "stopped"],
    ]
    assert ran.err.splitlines()[-1] == "hint: `--yes` where nobody can answer"


@pytest.mark.parametrize(
    ("name", "message"),
    [("is-up", "job `is-up` is up, as far as is known here"), ("nobody", "no job `nobody` is known here")],
)
def test_a_job_that_is_named_has_to_be_down(histories: Any, name: str, message: str) -> None:
    ran = histories("prune", "--yes", "ended", name)
    assert (ran.code, ran.err.splitlines()[0], left()) == (2, f"error: {message}", EVERY)


def test_a_command_that_found_no_job_leaves_none_in_the_list(jobctl: Any) -> None:
    """Its lock stays if it is killed; while somebody holds that lock, a job may be about to come up."""
    mine = JobDir(Path("state/jobs").absolute() / "never").lock
    with lock.hold(mine, "stop"):
        pass
    assert mine.exists()
    assert json.loads(jobctl("list", "--all", "-o", "json").out) == []
    with lock.hold(mine, "up"):
        assert [job["job"] for job in json.loads(jobctl("list", "--all", "-o", "json").out)] == ["never"]


@pytest.mark.usefixtures("histories")
def test_a_job_that_comes_up_in_between_keeps_its_history() -> None:
    """Between the question and the answer somebody brings one up, and another command works on the other."""
    found = find_prunable(PruneRequest())
    events.record(JobDir(Path("state/jobs/ended")).events, NOW, "up", "up: torch")
    with lock.hold(Path("state/jobs/recent/lock"), "up"):
        done = prune(found)
    assert (done.jobs, left()) == ([], EVERY)
    assert [kept.reason.split(" (")[0] for kept in done.kept[-2:]] == ["it has come up since", "it is locked by `up`"]


def test_files_that_a_killed_command_was_writing_go_too(histories: Any) -> None:
    for name in ("source.json", "channels.json", "collected.json"):
        (Path("state/jobs/ended") / f".{name}.k3_x9abc").write_text("a webhook's URL")
    assert histories("prune", "--yes", "ended").code == 0
    assert left() == EVERY - {"ended"}


def test_files_that_others_put_there_stay(histories: Any) -> None:
    """A checkpoint, say: jobctl deletes none."""
    kept = Path("state/jobs/ended/checkpoints/step-100")
    kept.parent.mkdir()
    kept.write_text("weights")
    ran = histories("prune", "--yes", "ended")
    assert (ran.code, kept.read_text(), sorted(path.name for path in kept.parents[1].iterdir())) == (
        0,
        "weights",
        ["checkpoints"],
    )
    assert "has files that are not jobctl's: checkpoints" in ran.err


def test_list_all_has_jobs_that_are_down_too(histories: Any) -> None:
    assert [job["job"] for job in json.loads(histories("list", "-o", "json").out)] == ["is-up"]
    jobs = {job["job"]: job for job in json.loads(histories("list", "--all", "-o", "json").out)}
    assert set(jobs) == EVERY
    shown = {name: (job["phase"], job["down"], job["target"]) for name, job in jobs.items()}
    assert shown["ended"] == ("succeeded", True, "ssh")
    assert shown["recent"] == ("stopped", True, "ssh")
    assert shown["crashed"] == ("unknown", None, "ssh")
    assert jobs["is-up"]["down"] is False
    text = histories("list", "--all")
    day = jobs["ended"]["down_since"][:10]
    assert f"succeeded, down since {day}" in text.out
    assert histories("list", "--all", "--hosts", "hosts.txt").code == 2
