"""Jobs in a real Slurm: their life, and what happens to them inside of their allocation."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import wait_for
from tests.slurm.conftest import BOTH, HOST_TIMEOUT, SlurmJobs, versions
from tests.slurm.lies import SILENT, lying

# What users set for themselves: `up` would not begin again what has just ended, and `stop` would ask, and wait.
OWN = {"SQUEUE_STATES": "all", "SCANCEL_INTERACTIVE": "1", "SLURM_TIME_FORMAT": "relative", "SLURM_IMMEDIATE": "1"}


@BOTH
def test_a_job_lives_and_leaves_nothing(jobs: SlurmJobs, request: pytest.FixtureRequest) -> None:
    assert jobs.cluster.run("sinfo", "--version").startswith(f"slurm-wlm {request.node.callspec.id}.")
    jobs.environ.update(OWN)
    jobs.write()
    jobs.ok("check", "--target", "slurm")
    assert jobs.run("plan", "--target", "slurm").returncode == 10
    jobs.ok("render", "--target", "slurm", "--out", "rendered")
    jobs.ok("up", "--target", "slurm")
    state = jobs.running()
    assert (state["phase"], state["target"], state["generation"]) == ("running", "slurm", 1)
    first = state["slurm"]["job_id"]
    assert (jobs.jobs(), state["slurm"]["state"]) == ([str(first)], "RUNNING")
    assert [node["host"] for node in state["nodes"]] == ["s1", "s2"]

    check_rendered(jobs, jobs.directory / "rendered")
    assert "nothing to do" in jobs.run("up").stderr
    assert (jobs.run("plan").returncode, jobs.jobs()) == (0, [str(first)])
    assert [one["job"] for one in json.loads(jobs.ok("list", "-o", "json"))] == [jobs.name]
    said = jobs.ok("exec", "--node", "1", "--", "sh", "-c", 'echo "$(hostname) $NODE_RANK $MASTER_ADDR"; pwd')
    assert said.splitlines() == ["s2 1 10.9.0.1", str(jobs.directory)]
    assert jobs.run("exec", "--node", "1", "--", "no-such-command").returncode == 127

    jobs.ok("stop")
    assert jobs.status()["phase"] == "stopped"
    assert jobs.jobs() == []
    last = jobs.step

    jobs.write(last + 40)
    jobs.ok("up")
    jobs.ok("wait", "--timeout", "240s")
    assert jobs.step == last + 40
    assert f"from step {last} generation 2" in jobs.ok("logs")
    assert [e["event"] for e in map(json.loads, jobs.ok("events", "-o", "json").splitlines())][-1] == "succeeded"
    assert "nothing to do" in jobs.run("up").stderr
    jobs.ok("pull", jobs.name, "pulled")
    assert f"at {last + 40}" in "".join(path.read_text() for path in (jobs.directory / "pulled").rglob("*.0"))

    jobs.ok("down")
    assert not (jobs.directory / ".jobctl").exists()
    assert [pid for node in jobs.cluster.nodes for pid in node.processes("rank.py")] == []


def check_rendered(jobs: SlurmJobs, folder: Path) -> None:
    """Check that what `render` has written is, byte for byte, what the nodes and Slurm have."""
    rendered = {path.name: path.read_bytes() for path in folder.glob("[!.]*")}
    assert rendered == {name: (jobs.work / name).read_bytes() for name in rendered}
    (job,) = jobs.jobs()
    assert jobs.cluster.run("scontrol", "write", "batch_script", job, "-") == rendered["job.sbatch"].decode()


@BOTH
def test_ranks_launchers_and_machines_that_fail_are_replaced_in_the_same_allocation(jobs: SlurmJobs) -> None:
    s2 = jobs.cluster.nodes[1]
    jobs.write(spec={"recovery": {"host_timeout": HOST_TIMEOUT}}, spares=1)
    jobs.ok("up", "--target", "slurm")
    job = jobs.running()["slurm"]["job_id"]
    wait_for(lambda: len(jobs.begun()) == 2, "ranks")
    jobs.goes_on()

    drilled = json.loads(jobs.ok("drill", "--yes", "--node", "1", "-o", "json"))
    assert (drilled["victim"], drilled["host"], drilled["continued"] is not False) == ("process", "s2", True)
    assert drilled["detected_by"] == "launchers"
    assert drilled["seconds"]["stopped"] < drilled["seconds"]["training"]
    wait_for(lambda: len(jobs.begun()) == 4 and max(jobs.begun())[1] == 2, "generation 2")

    os.kill(s2.processes("launcher.py")[0], signal.SIGKILL)
    wait_for(lambda: sorted(jobs.begun())[-1][1] == 3 and len(jobs.begun()) == 6, "generation 3")
    jobs.goes_on()

    s2.kill()
    wait_for(lambda: len(jobs.begun()) >= 8, "generation 4 with the spare")
    jobs.goes_on()
    state = jobs.running()
    assert [node["host"] for node in state["nodes"]] == ["s1", "s3"]
    assert state["spares"] == [{"host": "s2", "state": "unreachable"}]
    assert state["slurm"]["job_id"] == job
    events = [json.loads(line) for line in jobs.ok("events", "-o", "json").splitlines()]
    assert [(e["node"], e["host"]) for e in events if e["event"] == "host-lost"] == [(1, "s2")]
    begun = [e for e in events if e["event"] == "generation"]
    assert [(e["generation"], e["by"]) for e in begun][:2] == [(1, "supervisor"), (2, "launchers")]
    assert begun[1]["cause"] == "node 1: rank 1 was killed by SIGKILL (the launchers agreed)"
    page = jobs.ok("report", "-o", "-")
    assert "rank 1 was killed by SIGKILL" in page
    jobs.check_steps()
    s2.boot()
    s2.slurmd()  # otherwise Slurm waits for it before it lets go of the job
    jobs.ok("down")


@versions(
    pytest.mark.release(
        "tests/slurm/test_allocation.py::test_a_job_waits_in_the_queue_and_is_never_submitted_twice[22.05]"
    )
)
def test_a_job_waits_in_the_queue_and_is_never_submitted_twice(jobs: SlurmJobs, tmp_path: Path) -> None:
    other = jobs.cluster.run("sbatch", "--parsable", "--exclusive", "-N4", "--output=/dev/null", "--wrap", "sleep 600")
    jobs.write()
    killed = subprocess.Popen(
        [sys.executable, "-m", "jobctl", "up", "--target", "slurm"], cwd=jobs.directory, env=jobs.environ
    )
    wait_for(lambda: jobs.jobs() or killed.poll() is not None, "a job in the queue")
    killed.kill()
    killed.wait()
    jobs.ok("up", "--target", "slurm")
    (job,) = jobs.jobs()
    state = jobs.until(lambda state: state["slurm"]["reason"] == "Resources", "a reason")
    assert state["phase"] == "pending"
    assert f"job {job} waits in Slurm's queue (Resources)" in state["reason"]
    later = jobs.cluster.run("sbatch", "--parsable", "-N4", "--output=/dev/null", "--wrap", "true")
    jobs.cluster.run("scontrol", "update", f"JobId={later.strip()}", "Priority=4294967000")
    state = jobs.until(lambda state: state["slurm"]["position"] == 2, "a place in the queue behind the later job")
    assert "it is number 2 of 2 that wait for partition `all`" in state["reason"]
    jobs.cluster.run("scancel", later.strip())

    # A queue that is empty by mistake, and one that does not answer.
    for answer in ("exit 0", SILENT):
        lying(jobs, tmp_path / "lies", squeue=answer)
        assert jobs.status()["phase"] == "pending"
    lying(jobs, tmp_path / "lies", squeue=SILENT, scontrol=SILENT)
    silent = jobs.run("status", "-o", "json")
    assert (silent.returncode, json.loads(silent.stdout)["phase"]) == (3, "unknown")
    assert jobs.run("up").returncode == 3
    assert jobs.run("down").returncode == 3
    lying(jobs, tmp_path / "lies")
    assert jobs.jobs() == [job]

    jobs.cluster.run("scancel", other.strip())
    jobs.running()
    jobs.ok("down")


@versions(
    pytest.mark.release(
        "tests/slurm/test_allocation.py::test_a_job_over_ssh_brings_code_and_secrets_and_goes_on_in_a_chain_of_jobs[22.05]"
    )
)
def test_a_job_over_ssh_brings_code_and_secrets_and_goes_on_in_a_chain_of_jobs(
    jobs: SlurmJobs, login: Path, tmp_path: Path
) -> None:
    """In a directory whose name needs quoting in batch scripts."""
    shared = tmp_path / 'it\'s 50% "shared" $HOME'
    shared.mkdir()
    where = {"login": "login.test", "directory": str(shared).replace("$", "$$")}
    jobs.write(spec={"code": ".", "secrets": ["TOKEN"]}, requeue="chain", **where)
    jobs.environ.update(TOKEN="hidden-7", PATH=os.environ["PATH"])
    jobs.ok("up", "--target", "slurm", "--ssh-config", str(login))
    first = jobs.running()["slurm"]["job_id"]
    work = shared / ".jobctl" / jobs.name
    assert (work / "secrets" / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert "hidden-7" not in jobs.cluster.run("scontrol", "show", "job", str(first))

    def told() -> list[str]:
        return sorted(re.findall(r"node (\d) with hidden-7 in code", jobs.ok("logs")))

    wait_for(lambda: told() == ["0", "1"], "ranks")
    jobs.cluster.run("scancel", "--batch", "--signal=USR1", str(first))
    wait_for(lambda: told() == ["0", "0", "1", "1"], "ranks of generation 2")
    state = jobs.running()
    assert (state["generation"], state["slurm"]["job_id"] > first) == (2, True)
    jobs.ok("down")
    assert list(shared.iterdir()) == []


@versions(pytest.mark.release("tests/slurm/test_allocation.py::test_what_slurm_refuses_is_said_with_the_remedy[22.05]"))
def test_what_slurm_refuses_is_said_with_the_remedy(jobs: SlurmJobs) -> None:
    """Without accounting, it takes any account and QOS. On a busy machine, its nodes may not have answered for a moment."""

    def says(code: str) -> bool:
        done = jobs.run("check", "--target", "slurm", "-o", "json")
        return (done.returncode, done.stdout.count(f'"{code}"')) == (3, 1)

    refused = {
        "slurm-partition": [{"partition": "nowhere"}],
        "slurm-nodes": [{"spares": 7}, {"options": ["--nodelist=s99"]}],
        "slurm-constraint": [{"constraint": "a100"}],
        "slurm-gres": [{"gres": "gpu:8"}],
        "slurm-reservation": [{"reservation": "tuesday"}],
        "slurm-time": [{"partition": "brief", "time": "2h"}],
        "slurm-option": [{"options": ["--no-such-option=1"]}, {"options": ["--licenses=matlab"]}],
    }
    for code, block in [(code, block) for code, blocks in refused.items() for block in blocks]:
        jobs.write(**block)
        wait_for(lambda code=code: says(code), f"{code} of {block}")
    done = jobs.run("up", "--target", "slurm", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["failed_hosts"][0]["code"]) == (3, "slurm-option"), done.stdout
    jobs.write(spec={"resources": {"cpus": 900}})
    remedy = "look at `slurm`, `devices` and `resources`"
    wait_for(lambda: remedy in jobs.run("check", "--target", "slurm").stderr, "the remedy")
    assert jobs.jobs() == []
