"""examples/paddle-resnet and paddle-resnet-static: what a kill costs, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.standins import FEW, FEW_DIGITS

from .checkpoints import cut, steps
from .paddlelaunch import alone, launch, lines

SHORT = ("--epochs=1", "--checkpoint-every=5", FEW)  # 22 steps


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            "paddle-resnet/train.py",
            marks=pytest.mark.release(
                "tests/examples/test_paddle_resnet.py::test_a_killed_run_ends_as_an_undisturbed_one[paddle-resnet-static/train.py]",
                "tests/cluster/test_examples.py::test_it_trains_to_the_end[paddle-resnet-paddle-operator-paddle]",
                "tests/local/test_paddle.py::test_collective_ends_the_same_whatever_dies",
            ),
        ),
        "paddle-resnet-static/train.py",
    ],
)
def test_a_killed_run_ends_as_an_undisturbed_one(tmp_path: Path, script: str) -> None:
    """With Paddle's launcher: tests/local kills a process of it. Without one it goes on, too."""
    folder, progress = tmp_path / "undisturbed", tmp_path / "progress"

    def variables(folder: Path) -> dict[str, str]:
        return {"JOBCTL_CHECKPOINT_DIR": str(folder), "JOBCTL_CHECKPOINT_KEEP": "3", **FEW_DIGITS}

    undisturbed = lines(launch(2, script, *SHORT, "--min-accuracy=0"), **variables(folder))
    assert undisturbed[0] == "started step=0 of=22 processes=2 batch=8x2=16"
    assert steps(folder) == [15, 20, 22]
    killed = cut(folder, tmp_path / "killed", 15, "writing.tmp")
    resumed = lines(launch(2, script, *SHORT, "--min-accuracy=0"), **variables(killed))
    assert resumed == ["resumed step=15 of=22 processes=2 batch=8x2=16", *undisturbed[1:]]
    killed = cut(folder, tmp_path / "alone", 20, "writing.tmp")
    # Not accurate enough has an exit code of its own.
    argv = alone(script, *SHORT, "--min-accuracy=1.01")
    printed = lines(argv, code=3, JOBCTL_PROGRESS_FILE=str(progress), **variables(killed))
    assert printed[0] == "resumed step=20 of=22 processes=1 batch=16x1=16"
    assert printed[-1].startswith("final step=22 loss=")
    assert (progress.read_text(), steps(killed)) == ("22", [15, 20, 22])
