"""examples/mindspore-lenet without a launcher; with jobctl: tests/local/test_examples.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.tools.frameworks import python_of
from tests.tools.standins import FEW, FEW_DIGITS

from .torchrun import EXAMPLES, PATIENCE, environ

SHORT = ("--epochs=1", "--checkpoint-every=8", FEW)  # 22 steps


def test_it_goes_on_from_its_last_whole_checkpoint(tmp_path: Path) -> None:
    argv = [str(python_of("mindspore")), str(EXAMPLES / "mindspore-lenet/train.py"), *SHORT]
    folder = tmp_path / "rank-0"

    def run(*args: str, code: int) -> list[str]:
        variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path), "GLOG_v": "3", **FEW_DIGITS}
        done = subprocess.run(
            [*argv, *args], env=environ(**variables), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith(("started", "resumed", "final"))]

    first = run("--min-accuracy=0", code=0)
    assert first[0] == "started step=0 of=22 rank=0 workers=1"
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000016.ckpt", "step-00000022.ckpt"]
    (folder / "step-00000022.ckpt").rename(folder / "writing.ckpt")  # killed while it saved
    assert run("--min-accuracy=1.01", code=3) == ["resumed step=16 of=22 rank=0 workers=1", first[1]]
