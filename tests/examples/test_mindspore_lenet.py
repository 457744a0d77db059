"""examples/mindspore-lenet without a launcher; with jobctl: tests/local/test_examples.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.tools.frameworks import python_of

from .torchrun import EXAMPLES, PATIENCE, environ

SHORT = ("--epochs=8", "--checkpoint-every=8")  # 176 steps


def test_it_reaches_its_accuracy_and_goes_on_from_its_last_whole_checkpoint(tmp_path: Path) -> None:
    argv = [str(python_of("mindspore")), str(EXAMPLES / "mindspore-lenet/train.py"), *SHORT]
    folder = tmp_path / "rank-0"

    def run(*args: str, code: int) -> list[str]:
        variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path), "GLOG_v": "3"}
        done = subprocess.run(
            [*argv, *args], env=environ(**variables), capture_output=True, text=True, timeout=3 * PATIENCE, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith(("started", "resumed", "final"))]

    first = run("--min-accuracy=0.93", code=0)
    assert first[0] == "started step=0 of=176 rank=0 workers=1"
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000168.ckpt", "step-00000176.ckpt"]
    (folder / "step-00000176.ckpt").rename(folder / "writing.ckpt")  # killed while it saved
    assert run("--min-accuracy=1.01", code=3) == ["resumed step=168 of=176 rank=0 workers=1", first[1]]
