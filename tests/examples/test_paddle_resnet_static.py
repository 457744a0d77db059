"""examples/paddle-resnet-static: what a kill costs, and what it does not, where the graph is static."""

from __future__ import annotations

from pathlib import Path

from tests.tools.pace import keep_pace, limit

from .paddlelaunch import EXAMPLES, alone, launch, lines, run_and_kill

SCRIPT = "paddle-resnet-static/train.py"
SHORT = ("--epochs=2", "--min-accuracy=0.5")  # 44 steps


def test_a_killed_run_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    undisturbed = lines(launch(2, SCRIPT, *SHORT), JOBCTL_CHECKPOINT_DIR=str(tmp_path / "undisturbed"))
    variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path / "disturbed")}
    script = keep_pace(EXAMPLES / "paddle-resnet-static", tmp_path / "script")
    limit(tmp_path / "disturbed", 25)
    often = launch(2, script, *SHORT, "--checkpoint-every=5")
    before = run_and_kill(often, 0, lambda line: line.startswith("epoch=0 step=22"), **variables)
    after = lines(launch(2, SCRIPT, *SHORT), **variables)
    assert before[0] == undisturbed[0] == "started step=0 of=44 processes=2 batch=32x2=64"
    assert after[0] in (f"resumed step={step} of=44 processes=2 batch=32x2=64" for step in (20, 25))
    assert after[-1] == undisturbed[-1]


def test_without_a_launcher(tmp_path: Path) -> None:
    folder, progress = tmp_path / "checkpoints", tmp_path / "progress"
    argv = alone(SCRIPT, "--epochs=1", "--checkpoint-every=10")
    variables = {"JOBCTL_CHECKPOINT_DIR": str(folder), "JOBCTL_CHECKPOINT_KEEP": "2"}
    printed = lines([*argv, "--min-accuracy=0"], JOBCTL_PROGRESS_FILE=str(progress), **variables)
    assert printed[0] == "started step=0 of=22 processes=1 batch=64x1=64"
    assert progress.read_text() == "22"
    assert sorted(path.name for path in folder.iterdir()) == [f"step-000000{n}.pdparams" for n in (20, 22)]
    # Not accurate enough has an exit code of its own, and there is nothing left to train.
    again = lines([*argv, "--min-accuracy=1.01"], code=3, **variables)
    assert again == ["resumed step=22 of=22 processes=1 batch=64x1=64", printed[-1]]
