"""Bytes that are not UTF-8: in variables of the environment, in options and in escapes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.store.secrets import SecretMissing, read_secrets, readable_secrets
from jobctl.jobspec.deploy.targets.local import environ as local_environ
from jobctl.jobspec.spec.model import Secret

OTHER = "caf\udce9"  # `café` in Latin-1, as Python has it


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('env: {A: "${OTHER}"}', (5, 10)),
        ('env: {A: "${NONE:-${OTHER}}"}', (5, 10)),
        ("env: {OTHER: }", (5, 7)),
    ],
)
@pytest.mark.parametrize("command", ["validate", "plan", "up"])
def test_a_value_that_is_no_text_is_an_error_with_a_place(
    jobctl: Any, monkeypatch: pytest.MonkeyPatch, command: str, text: str, place: tuple[int, int]
) -> None:
    monkeypatch.setenv("OTHER", OTHER)
    Path("job.yaml").write_text(f"name: small\nframework: torch\nmodule: m\nnodes: 1\n{text}\n")
    ran = jobctl(command, "-o", "json")
    (found,) = json.loads(ran.out)["diagnostics"]
    assert (ran.code, found["code"], found["line"], found["column"]) == (2, "not-text", *place)


def test_an_option_that_is_no_text_is_an_error(jobctl: Any) -> None:
    ran = jobctl("validate", "--set", f"env.A={OTHER}")
    assert (ran.code, "`env.A` is not UTF-8 text [not-text]" in ran.out) == (2, True)


@pytest.mark.parametrize(("value", "why"), [(OTHER, "is not UTF-8 text"), ("a\0b", "holds a NUL character")])
def test_a_secret_that_no_process_can_get_is_an_error_without_its_value(value: str, why: str) -> None:
    secrets, environ = [Secret(name="A")], {"A": value}
    with pytest.raises(SecretMissing, match=f"secret `A`: its value {why}") as caught:
        read_secrets(secrets, Path(), environ)
    assert value not in f"{caught.value} {caught.value.hint}"
    assert readable_secrets(secrets, Path(), environ) == {}


def test_processes_of_this_machine_get_variables_of_other_bytes_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_environ, "_with_framework", lambda plan, environ: dict(environ))
    plan: Any = SimpleNamespace()
    local_environ.record_environ(tmp_path, plan, {"OTHER": OTHER, "A": "é"})
    assert local_environ.recorded_environ(tmp_path) == {"OTHER": OTHER, "A": "é"}
    json.loads((tmp_path / "environ.json").read_bytes())  # a launcher reads it
