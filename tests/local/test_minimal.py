"""The shortest real job of each framework: the scripts of docs/writing-training-scripts.md."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.tools.frameworks import Name, need_packages, python_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(jobs: Any, tmp_path: Path) -> Any:
    """A copy of an example, with an environment that has its framework."""

    def copy(name: str, framework: Name | Literal["torch"]) -> Any:
        if framework == "torch":
            need_packages("torch")
        else:
            jobs.set(PATH=f"{python_of(framework).parent}{os.pathsep}{os.environ['PATH']}")
        (jobs.directory / "job.yaml").unlink()
        jobs.directory = shutil.copytree(EXAMPLES / name, tmp_path / name)
        jobs.set(CHECKPOINT_DIR=str(tmp_path / "checkpoints"), OMP_NUM_THREADS="1")
        return jobs

    return copy


def said(jobs: Any, *options: str) -> list[str]:
    """Return what the ranks have printed once the job has trained to its end."""
    # That the framework is there is checked in tests/cli/test_local_check.py.
    done = jobs.run("up", "--skip-check", "--follow", "--set=recovery.standby='off'", *options, timeout=400)
    assert done.returncode == 0, done.stderr
    return [line.partition(" | ")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("framework", ["torch", "paddle", "mindspore", "jax"])
def test_a_minimal_script_trains_and_saves(example: Any, framework: Any, tmp_path: Path) -> None:
    jobs = example("minimal", framework)
    (jobs.directory / "minimal.yaml").rename(jobs.directory / "job.yaml")
    script = jobs.directory / f"train_{framework}.py"
    text, count = re.subn(r"^(STEPS, SAVE_EVERY.*) = 2000, 100", r"\1 = 20, 10", script.read_text(), flags=re.M)
    assert count == 1
    script.write_text(text)
    jobs.set(FRAMEWORK=framework)
    lines = said(jobs)
    for rank in (0, 1):
        assert {f"rank {rank} begins at step 0", f"rank {rank} has trained 20 steps"} <= {*lines}
    assert {path.stem for path in tmp_path.glob("checkpoints/*/**/step-*")} == {"step-10", "step-20"}
