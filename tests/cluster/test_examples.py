"""The examples, trained for real in the pods of each operator that runs them: with what it would tell them, and no more.

The pods are containers on the hosts of a fleet. Whether the controllers do what is played here only a cluster can tell;
what they tell pods is written down in their sources.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.jobs import COUNTER
from tests.tools import mindsporescripts
from tests.tools.frameworks import Name

from .pods import Cluster

PODS = "containers"
EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {
    "torch-resnet": "[--epochs=3, --checkpoint-every=20, --min-accuracy=0.95]",
    "paddle-resnet": "[--epochs=1, --batch-size=64, --checkpoint-every=20, --min-accuracy=0]",
    "paddle-wide-deep": "[--ps-mode=async, --epochs=3, --batch-size=16, --checkpoint-every=28, --min-accuracy=0.8]",
    "torch-elastic": "[--epochs=3, --batch-size=32, --learning-rate=0.05, --min-accuracy=0.5]",
    "mindspore-lenet": "[--epochs=1, --checkpoint-every=15, --min-accuracy=0]",
}
# What differs little from what is trained all the same: with JOBCTL_TEST_PODS=all.
MORE = (
    ("torch-elastic", "kubeflow", None),
    ("paddle-resnet", "kubeflow", "paddle"),
    ("paddle-wide-deep", "none", "paddle-ps"),
)
Make = Callable[..., Cluster]


def start(cluster: Make, folder: Path, example: Path, framework: Name | None, **more: str) -> Cluster:
    """Start the pods of an example, which keeps its checkpoints in a folder."""
    told = {"env.OMP_NUM_THREADS": '"1"', "recovery.standby": "'off'", **more}
    made = cluster(example / "job.yaml", framework, environ={"CHECKPOINT_DIR": str(folder)}, **told)
    made.start()
    return made


@pytest.mark.parametrize(
    ("example", "operator", "framework"),
    [
        ("paddle-resnet", "paddle-operator", "paddle"),
        ("paddle-wide-deep", "paddle-operator", "paddle-ps"),
        pytest.param(
            *("mindspore-lenet", "none", "mindspore"),
            marks=pytest.mark.release(
                "tests/cluster/test_examples.py::test_workers_of_all_pods_find_their_scheduler",
                "tests/local/test_mindspore.py::test_it_ends_the_same_whatever_dies",
            ),
        ),
        ("torch-resnet", "none", None),
        *(MORE if os.environ.get("JOBCTL_TEST_PODS") == "all" else ()),
    ],
)
def test_it_trains_to_the_end(
    cluster: Make, tmp_path: Path, example: str, operator: str, framework: Name | None
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    more = {"args": SHORT[example], "kubernetes.operator": operator}
    if framework and "--min-accuracy=0]" in SHORT[example]:
        more["env.STANDIN_DIGITS"] = '"450"'
    made = start(cluster, folder, EXAMPLES / example, framework, **more)
    codes = made.finish(1800.0)
    assert set(map(tuple, codes.values())) == {(0,)}, made.story()
    assert any(folder.iterdir())
    assert "final step=" in made.story()


# Says who it is once its framework's launcher has found the others.
LIGHT = """\
import os
rank, world = (next(os.environ[name] for name in names if name in os.environ) for names in NAMES)
open(os.path.join(os.environ["JOBCTL_CHECKPOINT_DIR"], "rank-%s-of-%s" % (rank, world)), "w").close()
"""
NAMES = ("PADDLE_TRAINER_ID", "RANK"), ("PADDLE_TRAINERS_NUM", "WORLD_SIZE")


@pytest.mark.parametrize(
    ("example", "operator", "framework"),
    [("torch-resnet", "kubeflow", None), ("torch-resnet", "trainer", None), ("paddle-resnet", "none", "paddle")],
)
def test_the_launchers_of_all_pods_meet(
    cluster: Make, tmp_path: Path, example: str, operator: str, framework: Name | None
) -> None:
    (folder := tmp_path / "checkpoint").mkdir()
    (code := tmp_path / "code").mkdir()
    shutil.copy(EXAMPLES / example / "job.yaml", code)
    (code / "train.py").write_text(LIGHT.replace("in NAMES", f"in {NAMES!r}"))
    made = start(cluster, folder, code, framework, **{"kubernetes.operator": operator})
    assert set(map(tuple, made.finish(600.0).values())) == {(0,)}, made.story()
    assert sorted(path.name for path in folder.iterdir()) == ["rank-0-of-2", "rank-1-of-2"], made.story()


# Does what Paddle's servers and trainers do with the variables that they go by.
ROLES = """\
import os, socket
role, rank, port = os.environ["TRAINING_ROLE"], os.environ["JOBCTL_ROLE_RANK"], int(os.environ["PADDLE_PORT"])
if role == "PSERVER":
    listening = socket.create_server((os.environ["POD_IP"], port))
    while True:
        listening.accept()
for server in os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(","):
    host, port = server.rsplit(":", 1)
    socket.create_connection((host, int(port))).close()
assert rank == os.environ["PADDLE_TRAINER_ID"]
name = "trainer-%s-of-%s" % (rank, os.environ["PADDLE_TRAINERS_NUM"])
open(os.path.join(os.environ["JOBCTL_CHECKPOINT_DIR"], name), "w").close()
"""


def test_trainers_of_all_pods_find_their_servers(cluster: Make, tmp_path: Path) -> None:
    """Without an operator, which would tell them where they are; servers end with the trainers."""
    (folder := tmp_path / "checkpoint").mkdir()
    (code := tmp_path / "code").mkdir()
    shutil.copy(EXAMPLES / "paddle-wide-deep" / "job.yaml", code)
    (code / "train.py").write_text(ROLES)
    more = {"kubernetes.operator": "none", "ps": "{servers: 2, trainers: 2}"}
    made = start(cluster, folder, code, None, **more)
    assert set(map(tuple, made.finish(600.0).values())) == {(0,)}, made.story()
    assert sorted(path.name for path in folder.iterdir()) == ["trainer-0-of-2", "trainer-1-of-2"], made.story()


def test_workers_of_all_pods_find_their_scheduler(cluster: Make, tmp_path: Path) -> None:
    """Without an operator. A worker makes no step without an answer of the scheduler, which ends with them."""
    (folder := tmp_path / "checkpoint").mkdir()
    (code := tmp_path / "code").mkdir()
    shutil.copy(EXAMPLES / "mindspore-lenet" / "job.yaml", code)
    (code / "train.py").write_text(mindsporescripts.LIGHT)
    made = start(cluster, folder, code, None, **{"kubernetes.operator": "none"})
    made.until(lambda: all((folder / f"step-{rank}").exists() for rank in (0, 1)), 300.0)
    (folder / "end").touch()
    assert set(map(tuple, made.finish(600.0).values())) == {(0,)}, made.story()
    assert all(f"final {rank} 2\n" in made.story() for rank in (0, 1)), made.story()


COUNTING = """\
name: counter
framework: torch
command: [python3, -u, counter.py]
per: node
code: .
nodes: 2
checkpoint: ${CHECKPOINT_DIR}
"""


def test_a_lost_pod_costs_the_work_since_the_last_checkpoint(cluster: Make, tmp_path: Path) -> None:
    """Without an operator."""
    (folder := tmp_path / "checkpoint").mkdir()
    (code := tmp_path / "code").mkdir()
    (code / "counter.py").write_text(COUNTER)
    (code / "job.yaml").write_text(COUNTING)
    made = start(cluster, folder, code, None)
    made.until(lambda: all((folder / f"step-{rank}").exists() for rank in (0, 1)), 300.0)
    made.pods[1].kill()
    saved = [int((folder / f"step-{rank}").read_text()) for rank in (0, 1)]
    made.until(lambda: all("generation 2 " in pod.log(generation=2) for pod in made.pods), 300.0)
    (folder / "end").touch()
    assert made.finish(600.0) == {"counter-0": [0], "counter-1": [137, 0]}, made.story()
    for pod, step in zip(made.pods, saved, strict=True):
        assert int(pod.log(generation=2).splitlines()[0].rpartition(" ")[2]) >= step > 0
