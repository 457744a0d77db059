"""What `--node` says, and what is told where it names none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve.names import node_number
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.load import load_text

SPEC = "name: job\nframework: {framework}\nscript: train.py\nnodes: 2\n"


def plan(framework: str) -> Plan:
    """Return the plan of a job of two trainers."""
    spec: Any = load_text(Path("/specs/job.yaml"), SPEC.format(framework=framework), environ={}).spec
    return planner.plan(spec, (), Context("local", "/specs", "me@here", "1.0"))


def test_a_number_or_the_name_of_who_serves() -> None:
    assert [node_number(plan("mindspore"), text) for text in ("0", "1", "2", "scheduler")] == [0, 1, 2, 2]
    assert node_number(None, "7") == 7
    assert node_number(plan("torch"), "2", (0, 2)) == 2


@pytest.mark.parametrize(
    ("text", "among", "hint"),
    [
        ("scheduler", None, "nodes are numbered from 0"),
        ("-1", None, "nodes are numbered from 0"),
        ("\u0663", None, "nodes are numbered from 0"),  # a digit, but not one of ours
        ("9" * 5000, None, "nodes are numbered from 0"),
        ("2", range(2), "its nodes are 0 to 1"),
        ("2", range(1), "its only node is 0"),
        ("1", (0, 2), "its nodes are 0, 2"),  # an elastic job that has lost one
    ],
)
def test_there_is_none_such(text: str, among: Any, hint: str) -> None:
    with pytest.raises(Refused) as caught:
        node_number(plan("torch"), text, among)
    assert (caught.value.message, caught.value.exit_code, caught.value.hint) == (
        f"the job has no node `{text}`",
        2,
        hint,
    )
