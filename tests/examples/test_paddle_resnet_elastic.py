"""examples/paddle-resnet-elastic: no sample is lost or used twice, whatever the number of processes."""

from __future__ import annotations

import json
import random
import re
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.tools.pace import keep_pace, limit

from .paddlelaunch import EXAMPLES, alone, environ, launch, lines, python_of, run_and_kill

SCRIPT = "paddle-resnet-elastic/train.py"
ASK = """
import json, runpy, sys
example = runpy.run_path(sys.argv[1])
asked = json.load(sys.stdin)
streams = [list(example["Stream"](*stream)) for stream in asked["streams"]]
rates = [example["learning_rate"](*rate) for rate in asked["rates"]]
print(json.dumps({"streams": streams, "rates": rates}))
"""


def ask(**asked: Any) -> dict[str, Any]:
    """Call the example's own functions, where Paddle is."""
    argv = [str(python_of("paddle")), "-c", ASK, str(EXAMPLES / SCRIPT)]
    done = subprocess.run(argv, input=json.dumps(asked), env=environ(), capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_stream_goes_on_where_it_was_and_the_rate_follows() -> None:
    """Runs of some steps each, by changing numbers of processes, use the samples that one process would."""
    chance, batch, streams, runs = random.Random(0), 3, [], []
    for size in (1, 7, 40):
        for _ in range(5):
            start, first = 0, len(streams)
            for _ in range(4):
                world, steps = chance.randint(1, 4), chance.randint(0, 6)
                stop = start + steps * world * batch
                streams += [(size, 7, batch, start, stop, rank, world) for rank in range(world)]
                start = stop
            streams.append((size, 7, 1, 0, start, 0, 1))
            runs.append((size, first, len(streams)))
    answer = ask(streams=streams, rates=[(seen, 1000, 0.3) for seen in (0, 50, 100, 550, 1000)])
    for size, first, last in runs:
        used, number = [], first
        while number < last - 1:
            world = streams[number][-1]
            for shares in zip(*answer["streams"][number : number + world], strict=True):
                used += chain.from_iterable(shares)
            number += world
        assert used == list(chain.from_iterable(answer["streams"][last - 1]))
        epochs = [used[begin : begin + size] for begin in range(0, len(used), size)]
        assert all(len(set(epoch)) == len(epoch) for epoch in epochs)
    assert answer["rates"] == pytest.approx([0, 0.15, 0.3, 0.15, 0])


def test_one_process_then_two_then_one(tmp_path: Path) -> None:
    variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    options = ("--epochs=1", "--min-accuracy=0")  # 1437 samples
    limit(tmp_path / "checkpoints", 15)
    script = keep_pace(EXAMPLES / "paddle-resnet-elastic", tmp_path / "script")
    often = alone(script, *options, "--checkpoint-every=5")
    killed = run_and_kill(often, lambda line: line.startswith("step=10"), **variables)
    two = lines(launch(2, SCRIPT, *options), **variables)
    one = lines(alone(SCRIPT, *options), **variables)
    assert killed[0] == "started step=0 samples=0 of=1437 processes=1 batch=32x1=32"
    first = re.fullmatch(r"resumed step=(\d+) samples=(\d+) of=1437 processes=2 batch=32x2=64", two[0])
    last = re.fullmatch(r"final step=(\d+) samples=(\d+) accuracy=0\.\d+", two[-1])
    assert first is not None
    assert last is not None
    steps, samples = zip(*((int(m[1]), int(m[2])) for m in (first, last)), strict=True)
    assert steps[0] in (10, 15)
    assert samples[0] == 32 * steps[0]
    assert samples[1] - samples[0] == 64 * (steps[1] - steps[0])
    assert 1437 <= samples[1] < 1437 + 64
    # Nothing is left to train, and what one process finds is what two have left.
    begin = f"resumed step={steps[1]} samples={samples[1]} of=1437 processes=1 batch=32x1=32"
    assert one == [begin, two[-1]]
