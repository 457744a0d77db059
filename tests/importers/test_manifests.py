"""Manifests that `render` has made, read back: the spec says what the first one said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobctl.jobspec.importers.jobs import ImportContext, import_text
from jobctl.jobspec.spec.load import load_spec
from jobctl.main import main

ROOT = Path(__file__).parents[2]
# What a manifest cannot say: it is of jobctl alone, or the operator's.
LOST = ("recovery", "etcd", "code", "kubernetes")


def run(*argv: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    assert not ended.value.code


@pytest.mark.parametrize(
    ("example", "operator"),
    [
        ("torch-resnet", "kubeflow"),
        ("torch-elastic", "kubeflow"),
        ("paddle-resnet", "kubeflow"),
        ("paddle-resnet", "paddle-operator"),
        ("paddle-resnet-static", "paddle-operator"),
        ("paddle-wide-deep", "paddle-operator"),
    ],
)
def test_there_and_back(example: str, operator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), "NO_COLOR": "1"})
    spec = ROOT / "examples" / example / "job.yaml"
    overrides = (f"kubernetes.operator={operator}", "recovery.max_restarts=5", 'setup=["echo $$HOME $$(id)"]')
    words = [word for override in overrides for word in ("--set", override)]
    run("render", str(spec), "--target", "kubernetes", *words, "--out", str(tmp_path / "out"))
    texts = [path.read_text() for path in sorted((tmp_path / "out" / "manifests").iterdir())]
    (tmp_path / "all.yaml").write_text("---\n".join(texts))
    monkeypatch.chdir(tmp_path)
    run("import", "all.yaml", "-o", "job.yaml")

    def said(path: Path, *overrides: str) -> dict[str, Any]:
        loaded = load_spec(path, environ={}, overrides=overrides)
        assert loaded.spec is not None, loaded.diagnostics
        found = loaded.spec.model_dump()
        return {key: value for key, value in found.items() if key not in LOST} | {
            "max_restarts": loaded.spec.recovery.max_restarts if operator == "kubeflow" else None,
            "target": loaded.spec.code.target if loaded.spec.code else None,
            "operator": loaded.spec.kubernetes.operator if loaded.spec.kubernetes else None,
        }

    assert said(tmp_path / "job.yaml") == said(spec, *overrides)
    lost = [line for line in (tmp_path / "job.yaml").read_text().splitlines() if line.startswith("# not carried over")]
    assert [line for line in lost if "$(MASTER_PORT)" not in line] == []


EVERYTHING = ROOT / "tests" / "importers" / "cases" / "manifest-everything.txt"


def _mappings(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _mappings(inner, (*path, key))


def _told(manifest: dict[str, Any]) -> list[str]:
    found = import_text(yaml.safe_dump(manifest), ImportContext("/", "folder", lambda name: None))
    return [note for note in found.notes if note.startswith("not carried over")]


# Of these each key is one of the user's own, and carried over; or it is the cluster's, or told as a whole.
WHOLE = (
    "labels",
    "matchLabels",
    "annotations",
    "status",
    "heter",
    "env",
    "nodeSelector",
    "limits",
    "requests",
    "secret",
)


def test_nothing_of_a_manifest_is_lost_without_a_word() -> None:
    """A key that nobody knows is told wherever it stands."""
    text = EVERYTHING.read_text().partition("--- job.k8s.yaml\n")[2].partition("\n$ jobctl")[0]
    silent, asked = [], 0
    for path in _mappings(yaml.safe_load(text)):
        if set(path) & set(WHOLE):
            continue
        manifest = yaml.safe_load(text)
        inner, asked = manifest, asked + 1
        for key in path:
            inner = inner[key]
        inner["notKnownYet"] = "x"
        around = {str(key) for key in path}
        told = _told(manifest)
        if not any("notKnownYet" in note or f"{note.split()[3].partition('[')[0]}" in around for note in told):
            silent.append(path)
    assert silent == []
    assert asked > 20
