"""examples/paddle-wide-deep: in every mode it trains, and goes on from what the servers or trainer 0 had written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.tools.pace import keep_pace, limit

from .paddlelaunch import EXAMPLES, PATIENCE, alone, environ
from .paddleroles import roles

SCRIPT = "paddle-wide-deep/train.py"
SHORT = ("--epochs=3", "--min-accuracy=0.8", "--start-timeout=20")  # 42 steps


def test_it_trains_in_lock_step(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    options = ("--ps-mode=sync", *SHORT, "--checkpoint-every=20")
    with roles(tmp_path / "logs", SCRIPT, *options, JOBCTL_CHECKPOINT_DIR=str(folder)) as job:
        assert job.codes() == [0, 0], job.log("trainer-0") + job.log("trainer-1")
        assert job.server.poll() is None  # servers never end by themselves
        assert [(job.folder / f"trainer-{i}.progress").read_text() for i in (0, 1)] == ["42", "42"]
        assert list(job.work.iterdir()) == []
        printed = job.lines()
    assert printed[0] == "started step=0 of=42 trainers=2 batch=16x2=32 mode=sync"
    assert printed[-1].startswith("final step=42 loss=")
    assert sorted(path.name for path in folder.iterdir()) == ["tables-00000040", "tables-00000042"]


def test_it_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    mode = "async"  # in mode geo one start of fifteen hangs in Paddle 3.0.0 itself: see the example's README
    variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    options = (f"--ps-mode={mode}", *SHORT, "--checkpoint-every=7")
    script = keep_pace(EXAMPLES / "paddle-wide-deep", tmp_path / "script")
    limit(tmp_path / "checkpoints", 21)
    with roles(tmp_path / "killed", script, *options, **variables) as job:
        job.wait_for_line("epoch=0 step=14")
        job.trainers[1].kill()
        job.trainers[1].wait()
        limit(tmp_path / "checkpoints", None)
        # The other does not wait for it for ever.
        assert job.trainers[0].wait(PATIENCE) == 1
    with roles(tmp_path / "resumed", SCRIPT, *options, **variables) as job:
        assert job.codes() == [0, 0], job.log("trainer-0")
        resumed = job.lines()
    first = re.fullmatch(rf"resumed step=(\d+) of=42 trainers=2 batch=16x2=32 mode={mode}", resumed[0])
    assert first is not None
    assert int(first[1]) in (14, 21)
    assert loss(resumed) < 0.5
    # Nothing is left to train: what a third run finds in its servers is what the second had left in its own.
    with roles(tmp_path / "again", SCRIPT, *options, "--min-accuracy=1.01", **variables) as job:
        assert job.codes() == [3, 3], job.log("trainer-0")
        again = job.lines()
    assert again[0] == "resumed step=42 of=42 trainers=2 batch=16x2=32 mode=async"
    assert loss(again) == pytest.approx(loss(resumed), rel=1e-4)


def loss(lines: list[str]) -> float:
    """Return what the last line says."""
    found = re.fullmatch(r"final step=42 loss=(\S+) accuracy=\S+", lines[-1])
    assert found is not None
    return float(found[1])


def test_a_paddle_without_servers_is_told() -> None:
    done = subprocess.run(alone(SCRIPT), env=environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Paddle 3.3.1 has no parameter servers in it; 3.0.0 has"
