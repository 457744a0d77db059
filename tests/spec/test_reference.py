"""What is made from the models: the JSON Schema, and the generated pages of docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from jobctl.jobspec.spec.checks.codes import CODES, LATER
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.parts import pod as pod_parts
from jobctl.jobspec.spec.reference import codes_page, models_in, spec_page
from jobctl.jobspec.spec.schema import json_schema

ROOT = Path(__file__).parents[2]
SPECS = sorted(ROOT.glob("examples/*/job.yaml"))


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    Draft202012Validator.check_schema(json_schema())
    return Draft202012Validator(json_schema())


@pytest.mark.parametrize("path", SPECS, ids=lambda path: str(path.parent.name))
def test_the_examples_are_valid_by_the_schema_too(schema: Draft202012Validator, path: Path) -> None:
    assert [error.message for error in schema.iter_errors(yaml.safe_load(path.read_text()))] == []


HEAD = "name: demo\nframework: torch\nscript: train.py\n"


@pytest.mark.parametrize(
    "text",
    [
        'nodes: "2:4"',
        "nodes: {min: 1, max: 2}",
        "devices: {kind: gpu, ids: '0-3'}",
        "devices: {kind: gpu, ids: [1, 2]}",
        "checkpoint: /c",
        "checkpoint: {dir: /c, keep: 3}",
        "env: {A: 1, B: 1.5, C: true, D: , E: text}",
        "secrets: [A]",
        "secrets: {A: {env: X}, B: {file: y}, C: }",
        "volumes: ['/a:/b', {type: tmpfs, target: /t}]",
        "recovery: {hang_timeout: auto, window: 1h, rules: [{exit: 3, do: fail}]}",
        "recovery: {standby: 'off'}",
        "notify: []",
        "notify: [{'on': failed, webhook: URL, format: teams}, {command: page}, {email: a@b, 'on': [hang]}]",
        "notify: [{webhook: {file: a}}, {email: {to: [a, b@c], from: d, smtp: {host: e, user: f, password: g}}}]",
        "recovery: {standby: {import: [torchvision]}}",
        "resources: {shm_size: 16g, memory: 1073741824, cpus: 0.5, ulimits: {nofile: 5, core: {soft: 1, hard: 2}}}",
        "setup: [a, b]\nargs: [--n, 3]\nx-note: {a: [b]}",
        "etcd: {managed: {}}\nversion: 1",
        "etcd: {managed: {replicas: '${THREE:-3}'}}",
        "stop_grace_period: 90s\ncode: .\noutputs: [runs/]\nenv_file: a.env",
        # Before variables are replaced.
        "nodes: ${TWO}\npull: ${PULL:-always}\nrendezvous: {port: '${PORT:-29500}', timeout: '${TIME:-5m}'}",
        "checkpoint: {dir: /c, shared: '${SHARED:-false}', keep: '$TWO'}\nrecovery: {max_restarts: '${TWO}'}",
        "resources: {shm_size: '${TWO}g', cpus: '${TWO}'}\nkubernetes: {operator: '${OPERATOR:-none}'}",
        "rendezvous: {port: '29500'}\ncheckpoint: {dir: /c, shared: 'false'}\nresources: {cpus: '0.5'}",
        "build: {context: ., args: [A=1, D]}",
        "build: {args: {A: 1, x-note: [b]}}\nenv: {A: 1, x-note: [b]}",
        "devices: {kind: gpu, ids: 0}\ncontainer: {user: 1000}",
    ],
)
def test_what_is_valid_is_valid_by_the_schema(schema: Draft202012Validator, text: str) -> None:
    assert load_text(Path("/none/job.yaml"), HEAD + text, environ={"D": "", "TWO": "2"}).spec is not None
    assert [error.message for error in schema.iter_errors(yaml.safe_load(HEAD + text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "nodez: 3",
        "mode: collectiv",
        "recovery: {max_restart: 1}",
        "checkpoint: {keep: 2}",
        "stop_grace_period: 5",
        "rendezvous: {port: a}",
        "version: 2",
        "mode: ps\nps: {servers: 1, trainers: 1, gloo: 3}",
        "etcd: {managed: {replicas: 2}}",
    ],
)
def test_the_schema_finds_mistakes(schema: Draft202012Validator, text: str) -> None:
    assert not schema.is_valid(yaml.safe_load(HEAD + text))


def test_every_key_is_described() -> None:
    schema = json_schema()

    def undescribed(value: Any, where: str) -> list[str]:
        found = []
        for key, item in value.get("properties", {}).items():
            model = schema["$defs"].get(item.get("$ref", "").rpartition("/")[2], {})
            if "description" not in item and "description" not in model:
                found.append(f"{where}.{key}")
        return found

    assert undescribed(schema, "") == []
    assert [name for key, value in schema["$defs"].items() for name in undescribed(value, key)] == []


def test_defaults_are_in_the_schema() -> None:
    properties = json_schema()["properties"]
    assert (properties["mode"]["default"], properties["stop_grace_period"]["default"]) == ("collective", "45s")


@pytest.mark.parametrize(("name", "page"), [("spec.md", spec_page), ("diagnostics.md", codes_page)])
def test_generated_pages_are_current(name: str, page: Any) -> None:
    hint = "python -m jobctl.jobspec.spec docs"
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), hint


def fields(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield each key with its full path and its field, except for those that Kubernetes documents itself."""
    for name, info in model.model_fields.items():
        key = info.alias or name
        yield f"{path}{key}", key, info
        for part in models_in(info.annotation):
            if part.__module__ != pod_parts.__name__:
                yield from fields(part, f"{path}{key}.")


FIELDS = {path: (key, info) for path, key, info in fields(Spec)}


@pytest.fixture(scope="module")
def entries() -> dict[str, str]:
    """The entries of docs/spec.md, by the path of their key."""
    return dict(re.findall(r"^### `(\S+)`\n(.*?)(?=^##|\Z)", spec_page(), re.MULTILINE | re.DOTALL))


def test_the_page_has_meaning_values_default_and_example(entries: dict[str, str]) -> None:
    entry = re.compile(r"\n\S.*\n\n- Values: \S.*\n- Default: \S.*\n- Example: `\S.*`\n\s*", re.DOTALL)
    assert [path for path in FIELDS if not entry.fullmatch(entries[path])] == []


def test_the_example_of_a_key_is_valid(entries: dict[str, str]) -> None:
    wrong = {}
    for path, (key, info) in FIELDS.items():
        (shown,) = re.findall(r"^- Example: `(.*)`$", entries[path], re.MULTILINE | re.DOTALL)
        ((name, value),) = yaml.safe_load(shown).items()
        assert (path, name, [value]) == (path, key, info.examples)
        try:
            TypeAdapter(Annotated[info.annotation, path, *info.metadata]).validate_python(value)
        except ValidationError as error:
            wrong[path] = str(error)
    assert wrong == {}


def test_all_codes_are_documented() -> None:
    """Codes are words in quotes; each that planning, rendering or the models use is in the table."""
    used: set[str] = set()
    for path in ROOT.glob("jobspec/**/*.py"):
        text = path.read_text(encoding="utf-8")
        used |= set(re.findall(r"(?:PlanError|RenderError|bad|_Bad)\(\s*\"([a-z0-9-]+)\"", text))
    assert used <= set(CODES) | set(LATER)
