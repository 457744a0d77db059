"""What fails around a job while it runs: Slurm's own daemons and commands, the way to the login node, what jobctl knew."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.slurm.cluster import wait_for
from tests.slurm.conftest import SlurmJobs, versions
from tests.slurm.lies import SILENT, lying


@versions(
    pytest.mark.release(
        "tests/slurm/test_faults.py::test_a_job_goes_on_without_slurms_daemons_and_whatever_its_commands_say[22.05]"
    )
)
def test_a_job_goes_on_without_slurms_daemons_and_whatever_its_commands_say(jobs: SlurmJobs, tmp_path: Path) -> None:
    cluster, s2 = jobs.cluster, jobs.cluster.nodes[1]
    jobs.write()
    jobs.ok("up", "--target", "slurm")
    job = jobs.running()["slurm"]["job_id"]
    wait_for(lambda: len(jobs.begun()) == 2, "ranks")

    cluster.end_control()
    jobs.goes_on()
    assert jobs.status()["phase"] == "running"  # the coordinator tells
    assert jobs.run("down").returncode == 3
    cluster.control()
    wait_for(lambda: cluster.run("sinfo", "-h", check=False).strip(), "the controller")
    wait_for(lambda: jobs.jobs() == [str(job)], "the job")
    assert jobs.running()["slurm"]["job_id"] == job

    for pid in s2.processes("slurmd"):
        os.kill(pid, signal.SIGKILL)
    jobs.goes_on()
    s2.slurmd()

    for answer in ("exit 0", SILENT):
        lying(jobs, tmp_path / "lies", squeue=answer, scontrol=answer, sacct=answer)
        assert jobs.status()["phase"] == "running"
        assert jobs.run("up").returncode in (0, 3)
    lying(jobs, tmp_path / "lies", scancel=SILENT)
    assert jobs.run("down").returncode == 3  # what cannot be proved is not said
    lying(jobs, tmp_path / "lies")
    assert jobs.jobs() == [str(job)]
    jobs.check_steps()
    assert len(jobs.begun()) == 2  # nothing of all this has touched the ranks
    jobs.ok("down")
    assert jobs.jobs() == []


@versions(
    pytest.mark.release("tests/slurm/test_faults.py::test_a_login_node_that_is_cut_off_is_no_end_of_a_job[22.05]")
)
def test_a_login_node_that_is_cut_off_is_no_end_of_a_job(jobs: SlurmJobs, login: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    jobs.write(spec={"code": "."}, login="login.test", directory=str(shared))
    jobs.ok("up", "--target", "slurm", "--ssh-config", str(login))
    jobs.running()
    wait_for(lambda: jobs.step > 0, "a step")

    away = login.with_name("away")
    login.rename(away)
    login.write_text(away.read_text().replace("  Port ", "  Port 1\n  # "))
    cut = jobs.run("status", "-o", "json")
    assert (cut.returncode, json.loads(cut.stdout)["phase"]) == (3, "unknown"), cut.stderr
    assert jobs.run("down").returncode == 3
    jobs.goes_on()
    away.rename(login)
    jobs.running()

    # On another machine, which knows nothing of the job but its spec.
    jobs.environ["JOBCTL_STATE_DIR"] = str(tmp_path / "another")
    reached = ("--ssh-config", str(login))
    state = json.loads(jobs.ok("status", "-o", "json", *reached))
    assert (state["phase"], [node["host"] for node in state["nodes"]]) == ("running", ["s1", "s2"])
    assert "at" in jobs.ok("logs", "--tail", "5", *reached)
    jobs.ok("down", "--take-over", *reached)
    assert (jobs.jobs(), list(shared.iterdir())) == ([], [])
    assert "nothing" in jobs.run("down", *reached).stderr
