"""Others read what is rendered: Compose, the Compose Specification's schema, shells and shellcheck."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.render.artefact import Artefact, render
from tests.render.hostile import hostile_plan
from tests.render.plans import cases

PLANS = cases() | {f"{target}-hostile": hostile_plan(target) for target in ("compose", "ssh", "local")}


RENDERED = {
    f"{case}/{artefact.path}": artefact
    for case, plan in PLANS.items()
    for artefact in render(plan, first_generation(plan))
}


def named(ending: str) -> dict[str, Artefact]:
    return {name: artefact for name, artefact in RENDERED.items() if name.endswith(ending)}


COMPOSE_FILES, SCRIPTS = named("/compose.yaml"), named(".sh")


@pytest.fixture(scope="module")
def validator() -> Any:
    """What knows the Compose Specification's schema, which takes far longer to check than a file does."""
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(vendored.read_text())
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_compose_file_follows_the_schema(name: str, validator: Any) -> None:
    validator.validate(yaml.load(COMPOSE_FILES[name].content, yaml.CSafeLoader))


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_compose_accepts(name: str, compose: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_bytes(COMPOSE_FILES[name].content)
    done = subprocess.run(
        [*compose, "config", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "JOBCTL_USER": "1000:1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("argv", [("bash", "-n"), ("dash", "-n"), ("shellcheck", "--norc")], ids=lambda argv: argv[0])
def test_shell_accepts(argv: tuple[str, ...], tool: Callable[[str], str], tmp_path: Path) -> None:
    for name, script in SCRIPTS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(script.content)
        done = subprocess.run([tool(argv[0]), *argv[1:], str(path)], capture_output=True, text=True, check=False)
        assert (name, done.returncode, done.stdout + done.stderr) == (name, 0, "")


def test_self_is_asked_for_by_name(compose: tuple[str, ...], tmp_path: Path) -> None:
    """A compose file cannot know who starts it; without being told it starts nothing."""
    (tmp_path / "compose.yaml").write_bytes(COMPOSE_FILES["compose-self/gpu01/compose.yaml"].content)
    environ = {name: value for name, value in os.environ.items() if name != "JOBCTL_USER"}
    done = subprocess.run([*compose, "config"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "set it to the UID:GID that the job runs as" in done.stderr
