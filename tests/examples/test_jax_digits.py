"""examples/jax-digits without a launcher; with jobctl: tests/local/test_jax.py."""

from __future__ import annotations

from pathlib import Path

from tests.tools.frameworks import python_of
from tests.tools.standins import FEW, FEW_DIGITS

from .checkpoints import cut, steps
from .torchrun import EXAMPLES, lines

SHORT = ("--epochs=1", "--checkpoint-every=8", FEW)  # 22 steps


def test_it_goes_on_from_its_last_whole_checkpoint(tmp_path: Path) -> None:
    argv = [str(python_of("jax")), str(EXAMPLES / "jax-digits/train.py"), *SHORT]

    def run(folder: str, accuracy: str, code: int) -> list[str]:
        kept = str(tmp_path / folder)
        variables = {"JOBCTL_CHECKPOINT_DIR": kept, "JAX_PLATFORMS": "cpu", **FEW_DIGITS}
        return lines([*argv, f"--min-accuracy={accuracy}"], code=code, **variables)

    first = run("whole", "0", 0)
    assert (first[0], steps(tmp_path / "whole")) == ("started step=0 of=22 processes=1", [16, 22])
    cut(tmp_path / "whole", tmp_path / "cut", 16, "writing.tmp")
    again = run("cut", "1.01", 3)
    assert (again[0], again[-1]) == ("resumed step=16 of=22 processes=1", first[-1])
