"""Manifests that `render` has made, read back: the spec says what the first one said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

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
