"""Jobs that begin anew in a real Slurm: `restart`, also of one node, and `up --fresh`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.store.processes import start_ticks
from tests.slurm.cluster import wait_for
from tests.slurm.conftest import LONG, SlurmJobs, versions


def launchers(jobs: SlurmJobs) -> set[tuple[int, int | None]]:
    """Return the processes of all launchers, each with when it began: pids are used again."""
    return {(pid, start_ticks(pid)) for node in jobs.cluster.nodes for pid in node.processes("launcher.py")}


def test_a_restart_begins_one_generation_with_new_launchers(jobs: SlurmJobs) -> None:
    """Of the job's restarts after failures, here none, it takes none."""
    jobs.write(spec={"recovery": {"host_timeout": LONG, "max_restarts": 0}})
    jobs.ok("up", "--target", "slurm")
    job = jobs.running()["slurm"]["job_id"]
    wait_for(lambda: len(jobs.begun()) == 2, "ranks")
    jobs.goes_on()
    for generation, options in ((2, ()), (3, ("--node", "1"))):
        before = launchers(jobs)
        jobs.ok("restart", *options)
        jobs.goes_on()
        state = jobs.running()
        assert (state["generation"], state["slurm"]["job_id"]) == (generation, job)
        assert not before & launchers(jobs)
    wait_for(lambda: len(jobs.begun()) >= 6, "what the last rank has printed: it comes by way of other processes")
    assert sorted(jobs.begun()) == [(node, generation) for node in (0, 1) for generation in (1, 2, 3)]
    assert "the job has no node `2`" in jobs.run("restart", "--node", "2").stderr
    events = [json.loads(line) for line in jobs.ok("events", "-o", "json").splitlines()]
    causes = ["the job is new", "`jobctl restart`", "`jobctl restart`"]
    for kind in ("generation", "generation-begun"):
        assert [event["cause"] for event in events if event["event"] == kind] == causes
    jobs.check_steps()
    jobs.ok("down")


@versions(
    pytest.mark.release(
        "tests/slurm/test_anew.py::test_a_fresh_run_trains_from_the_start_in_the_same_allocation[22.05]"
    )
)
def test_a_fresh_run_trains_from_the_start_in_the_same_allocation(jobs: SlurmJobs) -> None:
    """Until `down`, the job stays in the directory of that run."""

    def steps(folder: Path) -> int:
        path = folder / "step"
        return int(path.read_text().split()[0]) if path.exists() else 0

    base = jobs.directory / "checkpoints"
    jobs.write()
    jobs.ok("up", "--target", "slurm")
    job = jobs.running()["slurm"]["job_id"]
    wait_for(lambda: steps(base) > 10, "steps")
    jobs.ok("up", "--fresh")
    last = steps(base)
    wait_for(lambda: steps(base / "fresh-1") > 5, "steps of the fresh run")
    state = jobs.running()
    assert (state["generation"], state["slurm"]["job_id"], steps(base)) == (2, job, last)
    wait_for(lambda: "from step 0 generation 2" in jobs.ok("logs"), "what a rank has printed")

    jobs.ok("stop")
    last = steps(base / "fresh-1")
    jobs.ok("up")
    wait_for(lambda: steps(base / "fresh-1") > last, "steps in the next allocation")
    again = jobs.running()["slurm"]["job_id"]
    assert again != job

    jobs.ok("stop")
    jobs.ok("up", "--fresh")
    wait_for(lambda: steps(base / "fresh-2") > 0, "steps of another fresh run")
    ups = [json.loads(line) for line in jobs.ok("events", "-o", "json").splitlines()]
    assert [event["fresh"] for event in ups if event["event"] == "up"] == [False, True, False, True]
    jobs.ok("down")


def test_another_value_of_a_secret_begins_a_generation_in_the_same_allocation(jobs: SlurmJobs) -> None:
    jobs.write(spec={"nodes": 1, "secrets": ["TOKEN"]})
    jobs.environ["TOKEN"] = "hidden-1"
    jobs.ok("up", "--target", "slurm")
    job = jobs.running()["slurm"]["job_id"]
    jobs.environ["TOKEN"] = "hidden-2"
    up = jobs.run("up")
    assert (up.returncode, "secrets.TOKEN: another value, which is not shown" in up.stdout + up.stderr) == (0, True)
    state = jobs.running()
    assert (state["generation"], state["slurm"]["job_id"]) == (2, job)
    wait_for(lambda: "node 0 with hidden-2" in (jobs.work / "slurm.out").read_text(), "a rank with the new value")
    jobs.ok("plan")
    jobs.write(spec={"nodes": 1, "secrets": ["TOKEN"]}, directory=str(jobs.directory / "other"))
    refused = jobs.run("up")
    assert (refused.returncode, jobs.jobs()) == (2, [str(job)])
    assert f"job `tiny` is up in {jobs.work}, and would be brought up in" in refused.stderr
    jobs.ok("down")
    assert not jobs.work.exists()
