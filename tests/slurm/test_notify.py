"""Who tells of a job in a real Slurm while nobody watches: a webhook gets each failure, once or twice."""

from __future__ import annotations

import collections
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import read_holder
from tests.slurm.cluster import wait_for
from tests.slurm.conftest import HOST_TIMEOUT, LONG, SlurmJobs, versions
from tests.tools.contents import holding
from tests.tools.webhook import Webhook, served

EVERY = ["failed", "recovered", "host-lost", "hang", "waiting", "straggler", "succeeded"]


@pytest.fixture
def hook() -> Iterator[Webhook]:
    """A webhook that this machine, the login node, reaches."""
    with served(Webhook()) as server:
        yield server


def write(jobs: SlurmJobs, hook: Webhook, timeout: str = LONG, **slurm: Any) -> None:
    """Write the spec of a job that tells of everything."""
    jobs.environ["HOOK"] = hook.url
    told = [{"on": EVERY, "webhook": "HOOK"}]
    recovery = {"host_timeout": timeout, "max_restarts": 20}
    jobs.write(spec={"notify": told, "recovery": recovery}, requeue="chain", **slurm)


def directory(jobs: SlurmJobs) -> JobDir:
    return JobDir(Path(jobs.environ["JOBCTL_STATE_DIR"]) / "jobs" / jobs.name)


def told(hook: Webhook) -> list[str]:
    """Return what was told: each event once, however often it came."""
    return [event for _, event in dict.fromkeys((one["id"], one["event"]) for one in hook.messages)]


def teller(jobs: SlurmJobs) -> int | None:
    """Return the process that `up` has left behind, None if there is none."""
    return read_holder(directory(jobs).supervisor_lock).get("pid")


def begun(jobs: SlurmJobs, generation: int) -> None:
    wait_for(lambda: sum(g == generation for _, g in jobs.begun()) == 2, f"generation {generation}")
    jobs.goes_on()


def kill_a_rank(jobs: SlurmJobs) -> None:
    os.kill(jobs.cluster.nodes[0].processes("rank.py")[-1], signal.SIGKILL)


@versions(pytest.mark.release("tests/slurm/test_notify.py::test_each_failure_is_told_while_nobody_watches[22.05]"))
def test_each_failure_is_told_while_nobody_watches(jobs: SlurmJobs, hook: Webhook) -> None:
    """Also in another allocation, and once nobody in it can say how the job has ended."""
    s2 = jobs.cluster.nodes[1]
    write(jobs, hook, HOST_TIMEOUT, spares=1)
    jobs.ok("up", "--target", "slurm")
    begun(jobs, 1)
    kill_a_rank(jobs)
    begun(jobs, 2)
    wait_for(lambda: told(hook) == ["recovered"], "a message")
    assert "rank 0 was killed by SIGKILL. It runs again after" in hook.messages[0]["text"]

    first = jobs.jobs()[-1]
    jobs.cluster.run("scancel", "--batch", "--signal=USR1", first)  # a time limit is not a failure
    begun(jobs, 3)
    assert jobs.jobs() != [first]
    s2.kill()
    begun(jobs, 4)
    wait_for(lambda: sorted(told(hook)) == ["host-lost", "recovered", "recovered"], "messages about a machine")
    assert "s2 does not answer: node 1 moves to s3" in [one["text"] for one in hook.messages]

    s2.boot()
    s2.slurmd()
    os.kill(jobs.cluster.nodes[0].processes("allocation.py\0run")[0], signal.SIGKILL)
    wait_for(lambda: told(hook)[-1] == "failed", "the last message")
    assert jobs.status()["phase"] == "failed"
    wait_for(lambda: teller(jobs) is None, "a process that has nothing left to tell")
    jobs.ok("down")
    assert len(told(hook)) == 4
    assert max(collections.Counter(one["id"] for one in hook.messages).values()) <= 2
    assert not directory(jobs).channels.exists()


def test_what_nobody_could_tell_the_next_command_tells(jobs: SlurmJobs, hook: Webhook) -> None:
    """It leaves somebody behind again, who tells of the end."""
    write(jobs, hook)
    jobs.ok("up", "--target", "slurm")
    begun(jobs, 1)
    killed = teller(jobs)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: teller(jobs) is None, "the end of the process that tells")
    kill_a_rank(jobs)
    begun(jobs, 2)
    assert told(hook) == []
    assert "nothing to do" in jobs.run("up").stderr
    wait_for(lambda: told(hook) == ["recovered"], "what has happened meanwhile")
    assert teller(jobs) not in (None, killed)
    jobs.ok("down")
    assert teller(jobs) is None


def test_slurm_and_the_job_do_not_get_the_url(jobs: SlurmJobs, hook: Webhook) -> None:
    write(jobs, hook, HOST_TIMEOUT)
    jobs.ok("up", "--target", "slurm")
    begun(jobs, 1)
    rank = jobs.cluster.nodes[0].processes("rank.py")[-1]
    assert b"HOOK=" not in Path(f"/proc/{rank}/environ").read_bytes()
    secret = hook.url.rpartition("/")[2].encode()
    assert holding(jobs.work, b"JOBCTL_NODE") != []  # files of the job are looked into
    assert holding(jobs.work, secret) + holding(jobs.cluster.dir, secret) == []
    assert "unset" in jobs.ok("run", "--", "sh", "-c", 'echo "${HOOK:-unset}"')

    # A machine without which the job cannot go on: a person is told, and again once it is back.
    s2 = jobs.cluster.nodes[1]
    s2.cable("down")
    wait_for(lambda: told(hook) == ["host-lost", "waiting"], "a message about a job that waits")
    assert hook.messages[-1]["text"] == "s2 does not answer, and no other machine is free: the job waits for it"
    s2.cable("up")
    wait_for(lambda: told(hook)[2:] == ["recovered"], "a message about a job that goes on")
    jobs.ok("stop")
    jobs.ok("down")
    assert told(hook) == ["host-lost", "waiting", "recovered"]  # a person who ends the job knows that


def test_a_job_that_waits_for_a_person_in_the_queue_says_so(jobs: SlurmJobs, hook: Webhook) -> None:
    other = jobs.cluster.run("sbatch", "--parsable", "--exclusive", "-N4", "--output=/dev/null", "--wrap", "sleep 600")
    write(jobs, hook)
    jobs.ok("up", "--target", "slurm")
    (job,) = jobs.jobs()
    jobs.cluster.run("scontrol", "uhold", job)
    wait_for(lambda: told(hook) == ["waiting"], "a message about a job that is held")
    assert "(JobHeldUser: it is held: `scontrol release` lets it go on)" in hook.messages[0]["text"]
    jobs.cluster.run("scancel", other.strip())
    jobs.cluster.run("scontrol", "release", job)
    begun(jobs, 1)
    wait_for(lambda: told(hook) == ["waiting", "recovered"], "a message about a job that goes on")
    jobs.ok("down")
