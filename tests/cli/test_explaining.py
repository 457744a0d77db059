"""`plan --explain`: ranks, devices, endpoints and variables of the whole job."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from jobctl.views.plan import own_variables

# Renewed with --update-golden.
EXPLAINED = Path(__file__).parents[1] / "golden" / "cli" / "env-of-every-server.txt"


def test_plan_explains_the_whole_job(jobctl: Any) -> None:
    ran = jobctl("plan", "--explain")
    assert (ran.code, ran.out.splitlines()[-1]) == (10, "supervise small: no supervisor runs")
    assert "0     trainer  localhost  127.0.0.2  0      cpu:0" in ran.out
    assert "1     trainer  localhost  127.0.0.3  1      cpu:0" in ran.out
    document = json.loads(jobctl("plan", "--explain", "-o", "json").out)
    assert [node["host"]["address"] for node in document["nodes"]] == ["127.0.0.2", "127.0.0.3"]


def test_plan_explains_what_each_process_is_given(jobctl: Any, request: pytest.FixtureRequest) -> None:
    """Each variable once, and of the spec's own only those that the launcher lets through."""
    env = "env: {HTTP_PROXY: 'http://p:1', PADDLE_WITH_GLOO: '2', FLAGS_selected_gpus: '7', MASTER_ADDR: x, NCCL_DEBUG: INFO}"
    ps = "mode: ps\nps: {servers: 1, trainers: 1}\ndevices: {kind: gpu, ids: '3'}\n"
    Path("job.yaml").write_text(f"name: wide\nframework: paddle\nscript: train.py\n{ps}{env}\n")
    lines = jobctl("plan", "--explain").out.splitlines()
    server = lines.index("env of every server:")
    found = "\n".join(lines[server + 1 : lines.index("each process runs:")]) + "\n"
    found = re.sub("(?<=JOBCTL_RUN_ID=wide-)[0-9a-f]{8}", "RUN", found)  # of the folder
    if request.config.getoption("--update-golden"):
        EXPLAINED.write_text(found)
    assert found == EXPLAINED.read_text()


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        ("kubeflow", {"JOBCTL_JOB", "JOBCTL_RUN_ID", "JOBCTL_ROLE", "JOBCTL_CHECKPOINT_DIR"}),
        (
            "none",
            {f"JOBCTL_{name}" for name in ("JOB", "RUN_ID", "ROLE", "CHECKPOINT_DIR", "NODE", "NODES", "GENERATION")}
            | {"JOBCTL_ROLE_RANK", "JOBCTL_PROGRESS_FILE"},
        ),
    ],
)
def test_plan_explains_jobctls_own_variables(operator: str, names: set[str]) -> None:
    """Under an operator each pod has no more of them than those that are the same in all."""
    plan, generation = Mock(), Mock(job="small", run_id="small-1", members=[1, 2], checkpoint_dir="/c")
    plan.cluster.operator = operator
    own = own_variables(plan, generation, Mock(role="trainer"))
    assert (set(own), own.get("JOBCTL_NODES", "2")) == (names, "2")
