"""examples/paddle-wide-deep: it trains with servers, and goes on from what they had written."""

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


def test_it_goes_on_from_a_checkpoint_in_another_mode(tmp_path: Path) -> None:
    """Killed where trainers go their own ways (mode geo hangs in one start of fifteen: README); ended in lock step."""
    variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    options = (*SHORT, "--checkpoint-every=7")
    script = keep_pace(EXAMPLES / "paddle-wide-deep", tmp_path / "script")
    limit(tmp_path / "checkpoints", 21)
    with roles(tmp_path / "killed", script, *options, "--ps-mode=async", **variables) as job:
        job.wait_for_line("epoch=0 step=14")
        job.trainers[1].kill()
        job.trainers[1].wait()
        limit(tmp_path / "checkpoints", None)
        # The other does not wait for it for ever.
        assert job.trainers[0].wait(PATIENCE) == 1
        assert job.lines()[0] == "started step=0 of=42 trainers=2 batch=16x2=32 mode=async"
    with roles(tmp_path / "resumed", SCRIPT, *options, "--ps-mode=sync", **variables) as job:
        assert job.codes() == [0, 0], job.log("trainer-0") + job.log("trainer-1")
        assert job.server.poll() is None  # servers never end by themselves
        assert [(job.folder / f"trainer-{i}.progress").read_text() for i in (0, 1)] == ["42", "42"]
        assert list(job.work.iterdir()) == []
        resumed = job.lines()
    first = re.fullmatch(r"resumed step=(\d+) of=42 trainers=2 batch=16x2=32 mode=sync", resumed[0])
    assert first is not None
    assert int(first[1]) in (14, 21)
    assert loss(resumed) < 0.5
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["tables-00000035", "tables-00000042"]
    # Nothing is left to train: what a third run finds in its servers is what the second had left in its own.
    with roles(tmp_path / "again", SCRIPT, *options, "--ps-mode=async", "--min-accuracy=1.01", **variables) as job:
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
