"""What is rendered, whole: files of `tests/golden/render`, renewed with `--update-golden`."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.order.launch import Launch
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.run.environment import Environment, Folders
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.artefact import render
from jobctl.jobspec.render.launcher import launcher
from jobctl.jobspec.render.payload import launch_json
from tests.render.plans import TOLD, cases, plan, planned

GOLDEN = Path(__file__).parent.parent / "golden" / "render"
ENVIRONMENTS = GOLDEN.parent / "environments"
CASES = cases()
PROGRAMS = ("launcher.py", "allocation.py")


def rendered(wanted: Plan) -> dict[str, tuple[int, bytes]]:
    return {artefact.path: (artefact.mode, artefact.content) for artefact in render(wanted, first_generation(wanted))}


@pytest.mark.parametrize("name", CASES)
def test_renders_as_recorded(name: str, request: pytest.FixtureRequest) -> None:
    found = {path: content for path, (_, content) in rendered(CASES[name]).items() if path not in PROGRAMS}
    if request.config.getoption("--update-golden"):
        _record(GOLDEN / name, found)
    files = [path for path in (GOLDEN / name).rglob("*") if path.is_file()]
    recorded = {path.relative_to(GOLDEN / name).as_posix(): path.read_bytes() for path in files}
    assert {path: content.decode() for path, content in found.items()} == {
        path: content.decode() for path, content in recorded.items()
    }


def _record(directory: Path, found: dict[str, bytes]) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    for path, content in found.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)


def test_every_recorded_case_is_rendered() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(CASES)


class Launcher:
    """As much of a launcher as its processes' environment comes from."""

    def __init__(self, folder: Path, launch: Any) -> None:
        self.dir, self.launch, self.program, self.secrets = str(folder), launch, "launcher.py", None
        self.pause = time.sleep


# What an image may say of a process's place, as it was built for another launcher.
OF_IMAGES = {
    "paddle": {"PADDLE_TRAINER_ID": "7", "TRAINING_ROLE": "OF-THE-IMAGE"},
    "mindspore": {"MS_ROLE": "OF-THE-IMAGE", "RANK_ID": "7", "RANK_TABLE_FILE": "/of/the/image"},
    "jax": {"JAX_PROCESS_ID": "7", "JAX_COORDINATOR_BIND_ADDRESS": "[::]:7", "JAX_PLATFORMS": "of-the-image"},
    "torch": {"RANK": "7", "MASTER_ADDR": "of-the-image"},
}


@pytest.mark.parametrize(("target", "name", "spec"), TOLD, ids=[f"{target}-{name}" for target, name, _ in TOLD])
def test_what_processes_find_in_their_environment(
    target: Any, name: str, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """environments/NAME.txt: the spec, and what each process finds. What the image says of its place does not arrive."""
    wanted = planned(spec, target)
    monkeypatch.setattr(os, "environ", dict(OF_IMAGES[wanted.framework]))
    data = json.loads(rendered(wanted)["control.json"][1])
    kept, data["checkpoint_dir"] = data["checkpoint_dir"], str(tmp_path / "checkpoints")
    order = Order.from_json(data)
    parts = [spec]
    for node, member in zip(wanted.nodes, order.members, strict=True):
        told: Any = Launcher(tmp_path / str(node.index), Launch.from_json(json.loads(launch_json(node.launch))))
        environment = Environment(told, order, member, Folders(told.dir, order.number))
        for local in range(node.launch.nproc):
            found = sorted(environment.process_environ(local).items())
            lines = [f"{key}={value}\n" for key, value in found if key != "JOBCTL_PROCESS"]
            parts.append(f"--- {node.role} {local} of node {node.index}\n" + "".join(lines))
    path, text = ENVIRONMENTS / f"{name}.txt", "".join(parts).replace(data["checkpoint_dir"], kept)
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_same_plan_same_bytes() -> None:
    assert rendered(CASES["compose-full"]) == rendered(cases()["compose-full"])


def test_launcher_is_sent_as_it_is_installed() -> None:
    assert rendered(plan())["launcher.py"] == (0o755, launcher())


@pytest.mark.parametrize(
    ("target", "modes"),
    [
        ("compose", {"launcher.py": 0o755, "control.json": 0o644, "gpu01/compose.yaml": 0o600}),
        ("ssh", {"launcher.py": 0o755, "control.json": 0o644, "gpu01/node-0.sh": 0o700}),
    ],
)
def test_modes(target: str, modes: dict[str, int]) -> None:
    """Only the user reads what has the values of `env`; containers of any user read the launcher."""
    assert {path: mode for path, (mode, _) in rendered(plan(target=target)).items()} == modes


def test_values_of_variables_are_in_files_that_only_the_user_reads() -> None:
    """On a cluster, everybody sees the job's directory, and the arguments of processes on its machines."""
    for engine in ("none", "podman", "docker", "apptainer", "enroot"):
        spec = "name: tiny\nframework: torch\nscript: train.py\nimage: torch:2.9\nenv: {KEY: not-for-all}\ncode: .\n"
        found = rendered(planned(f"{spec}slurm: {{directory: /shared, container: {engine}}}\n", "slurm"))
        holding = {path: mode & 0o077 for path, (mode, content) in found.items() if b"not-for-all" in content}
        assert holding == {"start.sh" if engine == "none" else "environ.json": 0}
        assert {path for path, (mode, _) in found.items() if not mode & 0o077} >= {"start.sh", "launch.json"}
