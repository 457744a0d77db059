"""examples/torch-elastic: no sample is lost or used twice, whatever the number of processes."""

from __future__ import annotations

import importlib.util
import re
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.pace import keep_pace, limit

from .torchrun import EXAMPLES, alone, lines, run_and_kill, torchrun

SCRIPT = "torch-elastic/train.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_elastic_train", EXAMPLES / SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@settings(max_examples=50)
@given(worlds=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), max_size=5), size=st.integers(1, 40))
def test_the_stream_goes_on_where_it_was(example: ModuleType, worlds: list[tuple[int, int]], size: int) -> None:
    """Runs of some steps each, by changing numbers of processes, use the samples that one process would."""
    batch, used = 3, []
    for world, steps in worlds:
        start = len(used)
        shares = [
            list(example.Stream(size, 7, batch, start, start + steps * world * batch, rank, world))
            for rank in range(world)
        ]
        for step in range(steps):
            used += chain.from_iterable(share[step] for share in shares)
    assert used == list(chain.from_iterable(example.Stream(size, 7, 1, 0, len(used), 0, 1)))
    epochs = [used[first : first + size] for first in range(0, len(used), size)]
    assert all(len(set(epoch)) == len(epoch) for epoch in epochs)


def test_the_learning_rate_is_scaled_and_decays(example: ModuleType) -> None:
    rates = [example.learning_rate(seen, 1000, 0.3) for seen in (0, 50, 100, 550, 1000)]
    assert rates == pytest.approx([0, 0.15, 0.3, 0.15, 0])


@pytest.mark.release(
    "tests/local/test_examples.py::test_elastic_goes_on_with_another_number_of_nodes",
    "tests/examples/test_torch_elastic.py::test_the_stream_goes_on_where_it_was",
)
def test_one_process_then_two(tmp_path: Path) -> None:
    """From more to fewer: tests/local."""
    variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    options = ("--epochs=2", "--min-accuracy=0.3")  # 2874 samples
    script = keep_pace(EXAMPLES / "torch-elastic", tmp_path / "script")
    limit(tmp_path / "checkpoints", 60)
    often = alone(script, *options, "--checkpoint-every=5")
    one = run_and_kill(often, lambda line: line.startswith("step=50"), **variables)
    two = lines(torchrun(2, SCRIPT, *options), **variables)
    assert one[0] == "started step=0 samples=0 of=2874 processes=1"
    first = re.fullmatch(r"resumed step=(\d+) samples=(\d+) of=2874 processes=2", two[0])
    last = re.fullmatch(r"final step=(\d+) samples=(\d+) accuracy=0\.\d+", two[-1])
    assert first is not None
    assert last is not None
    steps, samples = zip(*((int(m[1]), int(m[2])) for m in (first, last)), strict=True)
    assert steps[0] in (50, 55, 60)
    assert samples[0] == 32 * steps[0]
    assert samples[1] - samples[0] == 64 * (steps[1] - steps[0])
    assert 2874 <= samples[1] < 2874 + 64
