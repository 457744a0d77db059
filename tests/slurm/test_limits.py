"""Jobs that need more than one allocation: their time is over, or somebody else's job comes first."""

from __future__ import annotations

import json
import re

import pytest

from tests.slurm.cluster import wait_for
from tests.slurm.conftest import BOTH, HOST_TIMEOUT, SlurmJobs, versions


def again(jobs: SlurmJobs, how: str, begun: int) -> str:
    """Return the number of the job once it has another allocation; one that was requeued would wait for two minutes.

    `begun`: how many ranks had begun before what made it go on there.
    """

    def moved() -> bool:
        if how == "requeue":
            for job in jobs.cluster.run("squeue", "-h", "-n", jobs.name, "-t", "PD", "-o", "%i").split():
                jobs.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
        return len(jobs.begun()) == begun + 2

    wait_for(moved, "ranks in the next allocation")
    return max(jobs.jobs(), key=int)


@BOTH
@pytest.mark.parametrize(("how", "times"), [("requeue", 1), ("chain", 2)])
def test_time_limits_in_a_row_leave_loss_and_logs_as_they_would_be_without(
    jobs: SlurmJobs, how: str, times: int
) -> None:
    jobs.write(requeue=how)
    jobs.ok("up", "--target", "slurm")
    wait_for(lambda: len(jobs.begun()) == 2, "ranks")
    job = jobs.jobs()[0]
    for _ in range(times):
        jobs.goes_on()
        begun = len(jobs.begun())
        jobs.cluster.run("scancel", "--batch", "--signal=USR1", job)
        following = again(jobs, how, begun)
        assert (following == job) == (how == "requeue")
        job = following
    jobs.goes_on()
    state = jobs.running()
    assert (state["generation"], state["slurm"]["job_id"]) == (1 + times, int(job))
    ends_whole(jobs, 1 + times)


def ends_whole(jobs: SlurmJobs, generations: int) -> None:
    """Stop a job that has had so many generations: its loss is as if it had had one, and its logs have each step.

    All of its ranks had the time to save.
    """
    jobs.ok("stop")
    assert jobs.told_to_end() == [(generation, node) for generation in range(1, 1 + generations) for node in (0, 1)]
    jobs.check_steps()
    told = {int(step) for step in re.findall(r"at (\d+)", jobs.ok("logs"))}
    assert set(range(1, jobs.step + 1)) <= told
    assert sorted(generation for _, generation in jobs.begun()) == sorted([*range(1, 1 + generations)] * 2)
    jobs.ok("down")


@pytest.mark.release(
    "tests/slurm/test_limits.py::test_time_limits_in_a_row_leave_loss_and_logs_as_they_would_be_without"
)
@versions()
def test_five_limits_of_slurms_own_in_a_row_leave_loss_and_logs_as_they_would_be_without(jobs: SlurmJobs) -> None:
    """Slurm knows no limit below a minute: it warns after half of that."""
    jobs.write(requeue="chain", partition="brief", time="1m")
    jobs.ok("up", "--target", "slurm")
    seen = [jobs.jobs()[-1]]
    for generation in range(1, 7):
        wait_for(lambda number=generation: len(jobs.begun()) == 2 * number, f"generation {generation}")
        jobs.goes_on()
        seen.append(str(jobs.running()["slurm"]["job_id"]))
    assert len({*seen}) == 6
    ends_whole(jobs, 6)


@versions(
    pytest.mark.release(
        "tests/slurm/test_limits.py::test_a_job_without_a_machine_that_slurm_has_taken_away_goes_on_in_another_allocation[22.05]"
    )
)
def test_a_job_without_a_machine_that_slurm_has_taken_away_goes_on_in_another_allocation(jobs: SlurmJobs) -> None:
    s2 = jobs.cluster.nodes[1]
    jobs.write(spec={"recovery": {"host_timeout": HOST_TIMEOUT}}, requeue="chain")
    jobs.ok("up", "--target", "slurm")
    wait_for(lambda: len(jobs.begun()) == 2, "ranks")
    first = jobs.jobs()[0]
    s2.lose()
    again(jobs, "chain", 2)
    state = jobs.running()
    assert (state["slurm"]["job_id"] > int(first), state["generation"]) == (True, 2)
    assert "s2" not in [node["host"] for node in state["nodes"]]
    assert "Slurm has taken s2 out of the allocation" in jobs.ok("events")
    jobs.goes_on()
    jobs.check_steps()
    s2.boot()
    s2.slurmd()
    jobs.ok("down")


@versions(pytest.mark.release("tests/slurm/test_limits.py::test_a_job_that_has_ended_is_not_started_again[22.05]"))
def test_a_job_that_has_ended_is_not_started_again(jobs: SlurmJobs) -> None:
    for script, code in (("pass", 0), ("raise SystemExit(7)", 1)):
        jobs.write(spec={"command": [jobs.python, "-c", script], "recovery": {"max_restarts": 1}})
        assert jobs.run("up", "--target", "slurm").returncode in (0, code)  # it may have ended by then
        assert jobs.run("wait", "--timeout", "240s").returncode == code
        state = jobs.status()
        assert state["phase"] == ("failed" if code else "succeeded")
        wait_for(lambda: jobs.jobs() == [], "the end of the allocation")
        shown = jobs.cluster.run("scontrol", "show", "job", "--oneliner", str(state["slurm"]["job_id"]))
        assert "Restarts=0" in shown
    jobs.ok("down")


@versions(
    pytest.mark.release("tests/slurm/test_limits.py::test_a_job_goes_on_after_another_one_has_pushed_it_out[22.05]")
)
def test_a_job_goes_on_after_another_one_has_pushed_it_out(jobs: SlurmJobs) -> None:
    goes_on_after_another(jobs, "low")


def test_a_job_that_has_its_grace_goes_on_after_another_one_has_pushed_it_out(jobs: SlurmJobs) -> None:
    """Slurm tells its processes to end then, and the batch script only minutes later."""
    goes_on_after_another(jobs, "patient")


def goes_on_after_another(jobs: SlurmJobs, partition: str) -> None:
    """Have a job of that partition preempted, and requeued."""
    jobs.write(requeue="requeue", partition=partition)
    jobs.ok("up", "--target", "slurm")
    job = jobs.running()["slurm"]["job_id"]
    wait_for(lambda: len(jobs.begun()) == 2, "ranks")
    jobs.goes_on()
    urgent = jobs.cluster.run(
        *("sbatch", "--parsable", "-p", "urgent", "--exclusive", "-N4", "-o", "/dev/null", "--wrap", "sleep 600")
    ).strip()
    state = jobs.until(lambda state: state["phase"] == "pending", "a job that waits again")
    assert (state["slurm"]["job_id"], jobs.told_to_end()) == (job, [(1, 0), (1, 1)])
    jobs.cluster.run("scancel", urgent)
    again(jobs, "requeue", 2)
    jobs.goes_on()
    assert jobs.running()["generation"] == 2
    jobs.check_steps()
    events = [json.loads(line)["event"] for line in jobs.ok("events", "-o", "json").splitlines()]
    assert events.count("allocation") == 2
    jobs.ok("down")


@versions(
    pytest.mark.release(
        "tests/slurm/test_limits.py::test_a_job_whose_batch_script_has_lost_its_machine_goes_on_in_another_allocation[22.05]"
    )
)
def test_a_job_whose_batch_script_has_lost_its_machine_goes_on_in_another_allocation(jobs: SlurmJobs) -> None:
    s1 = jobs.cluster.nodes[0]
    jobs.write(spec={"recovery": {"host_timeout": HOST_TIMEOUT}}, requeue="requeue", spares=1)
    jobs.ok("up", "--target", "slurm")
    wait_for(lambda: len(jobs.begun()) == 2, "ranks")
    (job,) = jobs.jobs()
    jobs.goes_on()
    s1.lose()
    again(jobs, "requeue", 2)
    assert jobs.jobs() == [job]
    state = jobs.running()
    assert state["generation"] == 2
    assert [node["host"] for node in state["nodes"]] == ["s2", "s3"]
    jobs.goes_on()
    jobs.check_steps()
    assert "s1, the machine of the batch script, is lost: requeued" in jobs.ok("events")
    s1.boot()
    s1.slurmd()
    jobs.ok("down")
