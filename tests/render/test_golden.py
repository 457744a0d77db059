"""What is rendered, whole: files of `tests/golden/render`, renewed with `--update-golden`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from plans import cases, plan

from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.artefact import launcher, render

GOLDEN = Path(__file__).parent.parent / "golden" / "render"
CASES = cases()


def rendered(wanted: Plan) -> dict[str, tuple[int, bytes]]:
    return {artefact.path: (artefact.mode, artefact.content) for artefact in render(wanted, first_generation(wanted))}


@pytest.mark.parametrize("name", CASES)
def test_renders_as_recorded(name: str, request: pytest.FixtureRequest) -> None:
    found = {path: content for path, (_, content) in rendered(CASES[name]).items() if path != "launcher.py"}
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


def test_same_plan_same_bytes() -> None:
    assert rendered(CASES["compose-full"]) == rendered(cases()["compose-full"])


def test_launcher_is_sent_as_it_is_installed() -> None:
    assert rendered(plan())["launcher.py"] == (0o755, launcher())


@pytest.mark.parametrize(
    ("target", "modes"),
    [
        ("compose", {"launcher.py": 0o755, "control.json": 0o644, "gpu01/compose.yaml": 0o644}),
        ("ssh", {"launcher.py": 0o755, "control.json": 0o644, "gpu01/node-0.sh": 0o755}),
    ],
)
def test_modes(target: str, modes: dict[str, int]) -> None:
    assert {path: mode for path, (mode, _) in rendered(plan(target=target)).items()} == modes
