"""examples/torch-resnet: what a kill costs, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.pace import keep_pace, limit

from .torchrun import EXAMPLES, lines, run_and_kill, torchrun

SCRIPT = "torch-resnet/train.py"
SHORT = ("--epochs=2", "--min-accuracy=0.3")  # 44 steps


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The last line of a short run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return lines(torchrun(2, SCRIPT, *SHORT), JOBCTL_CHECKPOINT_DIR=str(folder))[-1]


def test_a_killed_run_ends_as_an_undisturbed_one(undisturbed: str, tmp_path: Path) -> None:
    """Killed is the rank that saves; tests/local kills others."""
    script = keep_pace(EXAMPLES / "torch-resnet", tmp_path / "script")
    limit(tmp_path / "checkpoints", 25)
    argv = torchrun(2, script, *SHORT, "--checkpoint-every=10")
    variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    before = run_and_kill(argv, 0, lambda line: line.startswith("epoch=0 step=22"), **variables)
    after = lines(torchrun(2, SCRIPT, *SHORT), **variables)
    assert before[0] == "started step=0 of=44 processes=2"
    assert after[0] == "resumed step=20 of=44 processes=2"
    assert after[-1] == undisturbed


def test_without_a_launcher(tmp_path: Path) -> None:
    folder, progress = tmp_path / "checkpoints", tmp_path / "progress"
    argv = [*torchrun(1, SCRIPT)[:1], str(EXAMPLES / SCRIPT), "--epochs=2", "--checkpoint-every=10"]
    variables = {"JOBCTL_CHECKPOINT_DIR": str(folder), "JOBCTL_CHECKPOINT_KEEP": "3"}
    printed = lines([*argv, "--min-accuracy=0.5"], JOBCTL_PROGRESS_FILE=str(progress), **variables)
    assert printed[0] == "started step=0 of=44 processes=1"
    assert progress.read_text() == "44"
    assert sorted(path.name for path in folder.iterdir()) == [f"step-000000{n}.pt" for n in (30, 40, 44)]
    # Not accurate enough has an exit code of its own, and there is nothing left to train.
    again = lines([*argv, "--min-accuracy=1.01"], code=3, **variables)
    assert again == ["resumed step=44 of=44 processes=1", printed[-1]]
