"""Frameworks in an allocation: where a launcher or a scheduler needs what Slurm gives."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools import mindsporescripts, paddlescripts
from tests.tools.frameworks import python_of

from .conftest import SlurmJobs


def train(jobs: SlurmJobs, python: Path, script: str, **spec: Any) -> list[str]:
    """Run a job of two nodes to its end, and return what it has printed."""
    (jobs.directory / "train.py").write_text(script)
    whole = {"name": jobs.name, "script": "train.py", "nodes": 2, "slurm": {"exclusive": False}, **spec}
    whole["recovery"] = {"standby": "off"}  # nothing is started twice
    (jobs.directory / "job.yaml").write_text(json.dumps(whole))
    # The job gets this environment: its `python3` is the one that has the framework.
    jobs.environ.update(PATH=f"{python.parent}:{jobs.environ['PATH']}", OMP_NUM_THREADS="1")
    jobs.ok("up", "--target", "slurm")
    jobs.ok("wait", "--timeout", "200s")
    said = jobs.ok("logs").splitlines()
    jobs.ok("down")
    return said


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


def test_mindspore_has_one_scheduler_which_shares_a_machine_with_a_worker(jobs: SlurmJobs) -> None:
    """By a light script, which goes by the same variables; the real MindSpore: tests/local."""
    checkpoint = str(jobs.directory / "checkpoints")
    until = 'while not os.path.exists(os.path.join(kept, "end")):'
    assert until in mindsporescripts.LIGHT
    script = mindsporescripts.LIGHT.replace(until, "while step < 5:")
    said = train(jobs, Path(sys.executable), script, framework="mindspore", checkpoint=checkpoint)
    assert sorted(re.findall(r"final (\d) (\d)", "\n".join(said))) == [("0", "2"), ("1", "2")]
    assert [(Path(checkpoint) / f"step-{rank}").read_text() for rank in "01"] == ["5", "5"]


@pytest.mark.release(
    "tests/local/test_paddle.py::test_parameter_servers",
    "tests/slurm/test_shapes.py::test_servers_and_trainers_share_the_machines_of_an_allocation",
)
def test_parameter_servers_of_paddle(jobs: SlurmJobs) -> None:
    spec = {"mode": "ps", "ps": {"servers": 1, "trainers": 2}, "env": {"STEPS": "5", "DELAY": "0"}}
    said = train(jobs, python_of("paddle-ps"), paddlescripts.SERVED, framework="paddle", **spec)
    assert sorted(re.findall(r"final (\d) (\d)", "\n".join(said))) == [("0", "2"), ("1", "2")]
