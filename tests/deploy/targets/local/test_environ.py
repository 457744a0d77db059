"""The environment of a job's processes on this machine: that of `up`, less what a job has told it of itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
from jobctl.jobspec.deploy.targets.local.environ import process_environ, record_environ, recorded_environ
from jobctl.jobspec.plan.types import Checkpoint
from tests.deploy.apply.test_executor import TWO

SHELL = {
    "HOME": "/home/me",
    "NNODES": "4",  # of the user's own
    "JOBCTL_CHECKPOINT_DIR": "/of/another/job",
    "JOBCTL_CHECKPOINT_KEEP": "9",
    "JOBCTL_PROGRESS_FILE": "/of/another/job/step",
    "JOBCTL_RUN_ID": "other-1",
    "JOBCTL_NODE": "3",
    "RANK": "7",
    "LOCAL_RANK": "7",
    "WORLD_SIZE": "8",
    "MASTER_ADDR": "10.9.9.9",
    "MASTER_PORT": "1",
}
PLAIN = replace(TWO, checkpoint=None)


def test_a_job_gets_nothing_of_the_job_that_it_was_started_from(tmp_path: Path) -> None:
    record_environ(tmp_path, PLAIN, SHELL)
    found = recorded_environ(tmp_path)
    found.pop("PATH", None)
    assert found == {"HOME": "/home/me", "NNODES": "4"}


def test_a_command_in_a_node_has_the_checkpoints_of_its_own_job_or_none() -> None:
    node, start = PLAIN.nodes[0], RuntimeInputs(SHELL, {})
    assert "JOBCTL_CHECKPOINT_DIR" not in process_environ(PLAIN, node, start)
    own = replace(PLAIN, checkpoint=Checkpoint("/c", shared=True, keep=2))
    assert process_environ(own, node, start)["JOBCTL_CHECKPOINT_DIR"] == "/c"
