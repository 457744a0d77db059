"""Each framework once in an allocation: where its launcher or its scheduler needs what Slurm gives."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import FULLER, SlurmJobs, versions
from tests.tools import mindsporescripts, paddlescripts
from tests.tools.frameworks import python_of


def train(jobs: SlurmJobs, python: Path, script: str, **spec: Any) -> list[str]:
    """Run a job of two nodes to its end, and return what it has printed."""
    (jobs.directory / "train.py").write_text(script)
    whole = {"name": jobs.name, "script": "train.py", "nodes": 2, "slurm": {"exclusive": False}, **spec}
    whole["recovery"] = {"standby": "off"}  # nothing is started twice
    (jobs.directory / "job.yaml").write_text(json.dumps(whole))
    jobs.use(python)
    jobs.ok("up", "--target", "slurm")
    jobs.ok("wait", "--timeout", "200s")
    said = jobs.ok("logs").splitlines()
    jobs.ok("down")
    return said


@versions(pytest.mark.release("tests/slurm/test_frameworks.py::test_torch[22.05]"), FULLER)
def test_torch(jobs: SlurmJobs) -> None:
    script = (
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.tensor([dist.get_rank() + 1.0])\n"
        "dist.all_reduce(total)\n"
        "print('sum', int(total), 'of', dist.get_world_size(), 'on', os.uname().nodename, flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    said = train(jobs, Path(sys.executable), script, framework="torch")
    assert sorted(re.findall(r"sum (\d) of (\d) on (\w+)", "\n".join(said))) == [("3", "2", "s1"), ("3", "2", "s2")]


@versions(
    pytest.mark.release(
        "tests/slurm/test_frameworks.py::test_mindspore_has_one_scheduler_which_shares_a_machine_with_a_worker[22.05]"
    ),
    FULLER,
)
def test_mindspore_has_one_scheduler_which_shares_a_machine_with_a_worker(jobs: SlurmJobs) -> None:
    env = {"STEPS": "5", "DELAY": "0"}
    checkpoint = str(jobs.directory / "checkpoints")
    script = mindsporescripts.COLLECTIVE
    said = train(jobs, python_of("mindspore"), script, framework="mindspore", env=env, checkpoint=checkpoint)
    assert (Path(checkpoint) / "state").read_text() == mindsporescripts.undisturbed(5)
    assert len([line for line in said if "final" in line]) == 2


@versions(pytest.mark.release("tests/slurm/test_frameworks.py::test_parameter_servers_of_paddle[22.05]"), FULLER)
def test_parameter_servers_of_paddle(jobs: SlurmJobs) -> None:
    spec = {"mode": "ps", "ps": {"servers": 1, "trainers": 2}, "env": {"STEPS": "5", "DELAY": "0"}}
    said = train(jobs, python_of("paddle-ps"), paddlescripts.SERVED, framework="paddle", **spec)
    assert sorted(re.findall(r"final (\d) (\d)", "\n".join(said))) == [("0", "2"), ("1", "2")]


@pytest.mark.release("tests/slurm/test_frameworks.py::test_torch")
@versions(cluster=FULLER)
def test_collective_paddle(jobs: SlurmJobs) -> None:
    spec = {"env": {"STEPS": "5", "DELAY": "0"}, "checkpoint": str(jobs.directory / "checkpoints")}
    said = train(jobs, python_of("paddle"), paddlescripts.COLLECTIVE, framework="paddle", **spec)
    assert sorted(re.findall(r"final (\d) (\d) (\d)", "\n".join(said))) == [("0", "2", "5"), ("1", "2", "5")]


@pytest.mark.release("tests/slurm/test_frameworks.py::test_torch")
@versions(cluster=FULLER)
def test_jax_asks_jobctl_and_not_slurm_who_takes_part(jobs: SlurmJobs) -> None:
    """It would find Slurm's variables, which are those of the allocation with its spares."""
    script = (
        "import os, jax, jax.numpy as jnp\n"
        "from jax.experimental.multihost_utils import process_allgather\n"
        "rank, world = int(os.environ['JAX_PROCESS_ID']), int(os.environ['JAX_NUM_PROCESSES'])\n"
        "jax.distributed.initialize(num_processes=world, process_id=rank)\n"
        "total = int(process_allgather(jnp.ones(1) + rank).sum())\n"
        "print('sum', total, 'of', jax.process_count(), 'on', os.uname().nodename, flush=True)\n"
    )
    said = train(jobs, python_of("jax"), script, framework="jax", slurm={"exclusive": False, "spares": 1})
    assert sorted(re.findall(r"sum (\d) of (\d) on (\w+)", "\n".join(said))) == [("3", "2", "s1"), ("3", "2", "s2")]
