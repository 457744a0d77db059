"""How soon a job in a real Slurm trains again, and what happens to jobs of real frameworks there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.failure import NodeFailure
from jobctl.jobspec.launcher.restart_policy import delay
from tests.fleet.campaign.training import ALONE, TORCH, undisturbed
from tests.slurm.cluster import Machine, wait_for
from tests.slurm.conftest import BOTH, FULLER, HOST_TIMEOUT, SlurmJobs, versions
from tests.tools import mindsporescripts, paddlescripts
from tests.tools.frameworks import python_of

LATE = 3.0  # seconds that jobctl may take beside the lease and the start of the processes
PATIENCE = 120.0


def kill(machine: Machine, word: str) -> None:
    found = machine.processes(word)
    os.kill(found[0] if word == "launcher.py" else found[-1], signal.SIGKILL)  # the guard of a launcher comes first


def restore(machine: Machine) -> None:
    machine.boot()
    machine.slurmd()


class Training:
    """A job whose steps are seen from outside."""

    def __init__(self, jobs: SlurmJobs, step: Callable[[], int]) -> None:
        self.jobs, self.step = jobs, step

    def goes_on(self) -> None:
        """Return once the job has made more steps than by now."""
        before = self.step()
        wait_for(lambda: self.step() > before, f"steps after {before}", PATIENCE)

    def after(self, fault: Callable[[], None]) -> None:
        """Let a fault happen, and see that the job trains again: in a later generation, in the same allocation."""
        state = self.jobs.running()
        fault()
        wait_for(lambda: self.jobs.status()["generation"] > state["generation"], "the next generation", PATIENCE)
        self.goes_on()
        assert self.jobs.running()["slurm"]["job_id"] == state["slurm"]["job_id"]


@pytest.mark.release(
    "tests/slurm/test_allocation.py::test_ranks_launchers_and_machines_that_fail_are_replaced_in_the_same_allocation"
)
@BOTH
def test_a_rank_a_launcher_and_a_machine_are_replaced_within_lease_and_start(jobs: SlurmJobs) -> None:
    """Beside the lease it takes what the first start took in the same allocation, and a little.

    A machine that is busy with other things takes longer to start what a lost one had. Of that only what jobctl itself
    waits for is seen: nothing, as the job has made steps since the failure before, which node 0 alone has counted.
    """
    jobs.write(spec={"recovery": {"host_timeout": HOST_TIMEOUT, "max_restarts": 20}}, spares=1)
    jobs.ok("up", "--target", "slurm")
    training = Training(jobs, lambda: jobs.step)
    training.goes_on()
    bound = begun(jobs) - placed(jobs)
    s2, seconds, began = jobs.cluster.nodes[1], dict[str, float](), list[float]()

    def strike(word: str) -> None:
        began.append(time.time())
        kill(s2, word)

    for word in ("rank.py", "launcher.py"):
        training.after(lambda word=word: strike(word))
        seconds[word] = begun(jobs) - began[-1]
    assert max(seconds.values()) <= float(HOST_TIMEOUT.rstrip("s")) + bound + LATE, (bound, seconds)
    training.after(s2.kill)
    failures = failures_of(jobs)
    assert len({failure.progress for failure in failures} - {None}) == len(failures) == 3, failures
    assert [delay(failure, failures[:number]) for number, failure in enumerate(failures)] == [0.0] * 3
    jobs.check_steps()
    jobs.ok("down")


def failures_of(jobs: SlurmJobs) -> list[NodeFailure]:
    """Return those because of which launchers have begun generations, the oldest first."""
    order = json.loads((jobs.work / "node-0" / "report.json").read_text())["order"]
    return [NodeFailure.from_json(failure) for failure in order["autonomy"]["failures"]]


def placed(jobs: SlurmJobs) -> float:
    """Return when the nodes of the job got their machines, in its only allocation."""
    events = [json.loads(line) for line in (jobs.work / "run" / "events.jsonl").read_text().splitlines()]
    (at,) = [event["time"] for event in events if event["event"] == "placed"]
    return float(at)


def begun(jobs: SlurmJobs) -> float:
    """Return when the last of the ranks has begun: each opens a file of its own."""
    return max(path.stat().st_mtime for path in (jobs.directory / "checkpoints").glob("node-?"))


def torch_job(jobs: SlurmJobs, standby: str = "off", **spec: Any) -> Training:
    """Bring up a job of PyTorch whose loss depends on its steps alone."""
    folder = jobs.directory / "checkpoints"
    (jobs.directory / "train.py").write_text(ALONE + TORCH)
    whole = {"name": jobs.name, "framework": "torch", "script": "train.py", "checkpoint": str(folder), **spec}
    whole["recovery"] = {"host_timeout": HOST_TIMEOUT, "max_restarts": 20, "standby": standby}
    (jobs.directory / "job.yaml").write_text(json.dumps(whole))
    return up(jobs, Path(sys.executable), folder / "checkpoint")


def up(jobs: SlurmJobs, python: Path, kept: Path) -> Training:
    jobs.use(python)
    jobs.ok("up", "--target", "slurm")
    training = Training(jobs, lambda: int(kept.read_text().split()[0]) if kept.exists() else 0)
    training.goes_on()
    return training


def torch_ends(jobs: SlurmJobs) -> None:
    """Have it end, and see that its loss is that of an undisturbed run."""
    (jobs.directory / "checkpoints" / "end").touch()
    jobs.ok("wait", "--timeout", "240s")
    kept = (jobs.directory / "checkpoints" / "checkpoint").read_text()
    assert kept == undisturbed(int(kept.split()[0]))
    assert not (jobs.directory / "checkpoints" / "TWICE").exists()
    jobs.ok("down")


def stands_by(jobs: SlurmJobs, state: dict[str, Any]) -> bool:
    """Say whether all nodes stand by. Processes that prepare that yield to all others: a busy machine never lets them."""
    for pid in [pid for machine in jobs.cluster.nodes for pid in machine.processes("parked")]:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text("0")
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
    return {node["standby"]["state"] for node in state["nodes"]} == {"ready"}


@pytest.mark.release(
    "tests/slurm/test_allocation.py::test_ranks_launchers_and_machines_that_fail_are_replaced_in_the_same_allocation",
    "tests/slurm/test_frameworks.py::test_torch",
)
@versions(cluster=FULLER)
def test_torch_trains_on_after_a_rank_and_a_machine_have_gone(jobs: SlurmJobs) -> None:
    """Launchers are killed in test_allocation.py, of ranks that start at once."""
    s2 = jobs.cluster.nodes[1]
    training = torch_job(jobs, nodes=2, slurm={"exclusive": False, "spares": 1})
    training.after(lambda: kill(s2, "train.py"))
    training.after(s2.kill)
    assert [node["host"] for node in jobs.running()["nodes"]] == ["s1", "s3"]
    restore(s2)
    torch_ends(jobs)


@pytest.mark.release(
    "tests/slurm/test_allocation.py::test_ranks_launchers_and_machines_that_fail_are_replaced_in_the_same_allocation",
    "tests/slurm/test_frameworks.py::test_torch",
)
@versions(cluster=FULLER)
def test_torch_that_stands_by_trains_again_without_another_start(jobs: SlurmJobs) -> None:
    """That a process was killed is known at once, and what begins has imported PyTorch already."""
    training = torch_job(jobs, "auto", nodes=2, slurm={"exclusive": False})
    jobs.until(lambda state: stands_by(jobs, state), "processes that stand by")
    began = time.time()
    assert json.loads(jobs.ok("drill", "--yes", "--node", "1", "-o", "json"))["detected_by"] == "launchers"
    training.goes_on()
    first = [float((jobs.directory / "checkpoints" / f"first-{number}").read_text()) for number in (1, 2)]
    assert first[1] - began < first[0] - placed(jobs)
    events = [json.loads(line) for line in jobs.ok("events", "-o", "json").splitlines()]
    ways = [(event["generation"], event["standby"]) for event in events if event["event"] == "generation-begun"]
    assert ways == [(1, False), (2, True)]
    torch_ends(jobs)


@pytest.mark.release(
    "tests/slurm/test_frameworks.py::test_torch",
    "tests/slurm/test_shapes.py::test_an_elastic_job_takes_the_machines_there_are_and_goes_on_with_fewer",
)
@versions(cluster=FULLER)
def test_elastic_torch_goes_on_with_fewer_machines_and_grows_again(jobs: SlurmJobs) -> None:
    s3 = jobs.cluster.nodes[2]
    training = torch_job(jobs, nodes="1:3", slurm={"exclusive": False})
    training.after(lambda: kill(s3, "train.py"))
    training.after(lambda: kill(s3, "launcher.py"))
    training.after(lambda: s3.cable("down"))
    jobs.until(lambda state: state["replicas"] == "2[1:3]", "a job of two nodes")
    training.after(lambda: s3.cable("up"))
    jobs.until(lambda state: state["replicas"] == "3[1:3]", "a job of three nodes")
    training.goes_on()
    torch_ends(jobs)


@pytest.mark.release(
    "tests/slurm/test_allocation.py::test_ranks_launchers_and_machines_that_fail_are_replaced_in_the_same_allocation",
    "tests/slurm/test_frameworks.py::test_mindspore_has_one_scheduler_which_shares_a_machine_with_a_worker",
)
@versions(cluster=FULLER)
def test_mindspore_trains_on_after_a_worker_a_launcher_and_a_machine_have_gone(jobs: SlurmJobs) -> None:
    folder, s2 = jobs.directory / "checkpoints", jobs.cluster.nodes[1]
    (jobs.directory / "train.py").write_text(mindsporescripts.COLLECTIVE)
    spec = {"name": jobs.name, "framework": "mindspore", "script": "train.py", "nodes": 2, "checkpoint": str(folder)}
    spec["env"] = {"STEPS": "100000", "DELAY": "0.1"}
    spec["recovery"] = {"host_timeout": HOST_TIMEOUT, "max_restarts": 20, "standby": "off"}
    (jobs.directory / "job.yaml").write_text(json.dumps({**spec, "slurm": {"exclusive": False, "spares": 1}}))
    training = up(jobs, python_of("mindspore"), folder / "state")
    training.after(lambda: kill(s2, "train.py"))
    training.after(lambda: kill(s2, "launcher.py"))
    training.after(s2.kill)
    restore(s2)
    jobs.ok("stop")
    kept = (folder / "state").read_text()
    assert kept == mindsporescripts.undisturbed(int(kept.split()[0]))
    jobs.ok("down")


@pytest.mark.release(
    "tests/slurm/test_shapes.py::test_servers_and_trainers_share_the_machines_of_an_allocation",
    "tests/slurm/test_frameworks.py::test_parameter_servers_of_paddle",
)
@versions(cluster=FULLER)
def test_parameter_servers_of_paddle_train_on_after_a_server_a_launcher_and_a_machine_have_gone(
    jobs: SlurmJobs,
) -> None:
    folder, s2 = jobs.directory / "checkpoints", jobs.cluster.nodes[1]
    (jobs.directory / "train.py").write_text(paddlescripts.SERVED)
    spec: dict[str, Any] = {"name": jobs.name, "framework": "paddle", "script": "train.py", "checkpoint": str(folder)}
    spec |= {
        "mode": "ps",
        "ps": {"servers": 2, "trainers": 2},
        "nodes": 2,
        "env": {"STEPS": "100000", "DELAY": "0.1"},
    }
    spec["recovery"] = {"host_timeout": HOST_TIMEOUT, "max_restarts": 20, "standby": "off"}
    (jobs.directory / "job.yaml").write_text(json.dumps({**spec, "slurm": {"exclusive": False, "spares": 1}}))
    jobs.use(python_of("paddle-ps"))
    jobs.ok("up", "--target", "slurm")
    training = Training(jobs, lambda: progress(jobs))
    training.goes_on()
    kill(s2, "train.py")  # of a trainer, the others do not begin again
    training.goes_on()
    training.after(lambda: kill(s2, "launcher.py"))
    training.after(s2.kill)
    restore(s2)
    (folder / "end").touch()
    jobs.ok("wait", "--timeout", "240s")
    jobs.ok("down")


def progress(jobs: SlurmJobs) -> int:
    """Return how far the trainers are: steps of this generation, and many for each generation."""
    state = jobs.status()
    done = max((node["progress"] or 0 for node in state["nodes"]), default=0)
    return 1_000_000 * int(state["generation"]) + done if done else 0
