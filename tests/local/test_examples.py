"""The examples as jobs: they reach their accuracy, and go on from their checkpoints.

torch-resnet: tests/examples (it goes on bit for bit), tests/cluster (its accuracy), test_standby.py (a rank of PyTorch that dies).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.tools.frameworks import need_packages, python_of
from tests.tools.pace import keep_pace, limit
from tests.tools.standins import FEW, FEW_DIGITS, PATH

need_packages("torch", "sklearn")

EXAMPLES = Path(__file__).parents[2] / "examples"
# What waits for the next start (test_standby.py) imports as much as what trains.
COLD = "--set=recovery.standby='off'"


@pytest.fixture
def example(jobs: Any, tmp_path: Path) -> Any:
    """A copy of an example by its name, with checkpoints of its own."""

    def copy(name: str) -> Any:
        shutil.copytree(EXAMPLES / name, tmp_path / name)
        (jobs.directory / "job.yaml").unlink()
        jobs.directory = tmp_path / name
        jobs.set(CHECKPOINT_DIR=str(tmp_path / "checkpoints"), PYTHONPATH=PATH)
        return jobs

    return copy


def final(text: str) -> re.Match[str]:
    """Return the last line that rank 0 prints."""
    found = re.findall(r"final step=\d+ loss=\S+ accuracy=\d\.\d+", text)
    assert found, text
    match = re.fullmatch(r"final step=(?P<step>\d+) loss=(?P<loss>\S+) accuracy=(?P<accuracy>\S+)", found[-1])
    assert match is not None
    return match


@pytest.mark.long
def test_elastic_goes_on_with_another_number_of_nodes(example: Any, eventually: Any, tmp_path: Path) -> None:
    jobs = example("torch-elastic")
    keep_pace(EXAMPLES / jobs.directory.name, jobs.directory)
    limit(tmp_path / "checkpoints", 40)
    args = "--set=args=[--epochs=5, --min-accuracy=0.9]"
    jobs.ok("up", args, COLD, "--set", "nodes=1:2")
    eventually(lambda: far(jobs, 1, 20), 240)
    assert "nodes changed from 2 to 1" in jobs.run("scale", "1").stderr
    limit(tmp_path / "checkpoints", None)
    assert jobs.run("wait", "--timeout", "300s", timeout=400).returncode == 0
    out = jobs.ok("logs", "--rank", "0")
    found = re.search(r"^.*final step=\d+ samples=(\d+) accuracy=(\S+)$", out, re.M)
    assert found, out
    assert int(found[1]) >= 7185  # 5 epochs of 1437 samples
    assert float(found[2]) >= 0.9
    assert [node["node"] for node in jobs.status()["nodes"]] == [0]


def far(jobs: Any, generation: int, step: int) -> dict[str, Any] | None:
    """Return the status once the generation has got that far."""
    state: dict[str, Any] = jobs.status()
    steps = [node["progress"] or 0 for node in state["nodes"] if node["role"] == "trainer"]
    return state if state["generation"] == generation and max(steps) >= step else None


@pytest.mark.release(
    "tests/examples/test_mindspore_lenet.py::test_it_reaches_its_accuracy_and_goes_on_from_its_last_whole_checkpoint",
    "tests/local/test_mindspore.py::test_it_ends_the_same_whatever_dies",
)
def test_lenet_resumes_at_the_step_that_every_rank_has(example: Any, tmp_path: Path) -> None:
    """As if a worker was killed while it saved: the weights become those of a run that nothing disturbed."""
    jobs = example("mindspore-lenet")
    jobs.set(PATH=f"{python_of('mindspore').parent}{os.pathsep}{os.environ['PATH']}", OMP_NUM_THREADS="1")
    jobs.set(**FEW_DIGITS)
    args = f"--set=args=[--epochs=1, --checkpoint-every=10, --min-accuracy=0, {FEW}]"  # its accuracy: tests/fleet
    done = jobs.run("up", args, COLD, "--follow", timeout=240)
    assert done.returncode == 0, done.stderr
    ended = re.compile(r"^(.*?) \| final .* (accuracy=\S+ weights=\S+)", re.M)
    undisturbed = set(ended.findall(done.stdout))  # a worker that crashes as it ends says it once more
    (tmp_path / "checkpoints" / "rank-1" / "step-00000022.ckpt").unlink()
    number = jobs.status()["generation"]
    jobs.ok("restart")
    assert jobs.run("wait", "--timeout", "200s", timeout=240).returncode == 0, jobs.ok("events")
    later = range(number + 1, jobs.status()["generation"] + 1)
    out = "".join(jobs.ok("logs", "--generation", str(one)) for one in later)
    assert {("20", "0"), ("20", "1")} <= set(re.findall(r"resumed step=(\d+) of=22 rank=(\d)", out))
    finals = set(ended.findall(out))
    assert len(undisturbed) == len(finals) == 2
    assert len({weights for _, weights in finals | undisturbed}) == 1


@pytest.mark.long
def test_wide_deep_reaches_its_loss_though_a_server_dies(example: Any, eventually: Any, tmp_path: Path) -> None:
    """A server takes all along: what is done stays done, nothing is left out, and all end with the trainers."""
    jobs = example("torch-wide-deep")
    jobs.set(OMP_NUM_THREADS="1")
    keep_pace(EXAMPLES / jobs.directory.name, jobs.directory, counter="done")
    limit(tmp_path / "checkpoints", 100)
    more = "--set=ps={servers: 2, trainers: 2}", COLD, "--skip-check"  # it passes in test_torch_ps.py
    jobs.ok("up", "--set=args=[--epochs=10, --checkpoint-every=28, --min-accuracy=0.9]", *more)
    # Who has trained further did not wait until all was saved.
    state = eventually(lambda: list((tmp_path / "checkpoints").glob("step-*")) and far(jobs, 1, 40), 240)
    assert [(n["role"], len(n["processes"])) for n in state["nodes"]] == [
        *(("trainer", 1), ("trainer", 1)),
        *(("server", 1), ("server", 1)),
    ]
    os.kill(state["nodes"][3]["processes"][0]["pid"], signal.SIGKILL)
    limit(tmp_path / "checkpoints", None)
    assert jobs.run("wait", "--timeout", "200s", timeout=240).returncode == 0, jobs.ok("events")
    eventually(lambda: {(n["state"], n["exit_code"]) for n in jobs.status()["nodes"]} == {("exited", 0)})
    assert jobs.status()["generation"] == 2
    out = jobs.ok("logs")
    resumed = re.findall(r"resumed step=(\d+) of=280 servers=2 trainers=2", out)
    assert len(resumed) == 1
    assert int(resumed[0]) >= 28
    last = final(out)
    assert int(last["step"]) == 280
    assert float(last["loss"]) <= 0.15
    assert float(last["accuracy"]) >= 0.93
