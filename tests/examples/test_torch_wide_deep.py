"""examples/torch-wide-deep: shards are a whole again whoever reads them, and a run by hand goes on where the last one was."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.tools.frameworks import need_packages
from tests.tools.ports import free_ports

from .torchrun import EXAMPLES, PATIENCE, environ

need_packages("torch")

SCRIPT = EXAMPLES / "torch-wide-deep/train.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_wide_deep_train", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("servers", [1, 2, 7])
def test_shards_make_up_the_whole(example: ModuleType, servers: int) -> None:
    whole = example.first_weights(0)
    shards = [example.Shard(whole, whole, index, servers, 0.1) for index in range(servers)]
    merged = example.merged([shard.state()["weights"] for shard in shards])
    assert merged.keys() == whole.keys()
    assert all(bool((merged[name] == whole[name]).all()) for name in whole)


def run(world: list[str], *args: str, **variables: str) -> list[str]:
    """Run the script as these roles, all to the end; return what trainer 0 printed."""
    (port,) = free_ports(1)
    names = {role: ",".join("127.0.0.1:1" for one in world if one == role) for role in ("server", "trainer")}
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(len(world)),
        "JOBCTL_SERVERS": names["server"],
        "JOBCTL_TRAINERS": names["trainer"],
        **variables,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *args],
            env=environ(JOBCTL_ROLE=role, JOBCTL_ROLE_RANK=str(world[:rank].count(role)), RANK=str(rank), **common),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, role in enumerate(world)
    ]
    try:
        printed = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(world), printed
    return [line for line in printed[0].splitlines() if re.match(r"started|resumed|final", line)]


@pytest.mark.release(
    "tests/local/test_examples.py::test_wide_deep_reaches_its_loss_though_a_server_dies",
    "tests/examples/test_torch_wide_deep.py::test_shards_make_up_the_whole",
)
def test_another_number_of_servers_and_trainers_goes_on(tmp_path: Path) -> None:
    """With nothing left to train, three processes find what two left."""
    variables = {"JOBCTL_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    first = run(["trainer", "server"], "--epochs=2", "--min-accuracy=0.8", **variables)
    assert first[0] == "started step=0 of=56 servers=1 trainers=1"
    found = re.fullmatch(r"final step=56 loss=(\S+) accuracy=(\S+)", first[1])
    assert found is not None
    assert float(found[2]) >= 0.8
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000028", "step-00000056"]
    again = run(["trainer", "server", "server"], "--epochs=2", "--min-accuracy=0.8", **variables)
    assert again == ["resumed step=56 of=56 servers=2 trainers=1", first[1]]
