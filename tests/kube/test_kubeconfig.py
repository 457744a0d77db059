"""Kubeconfigs: which cluster they name, and with which credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes")
import yaml

from jobctl.jobspec.deploy.kubernetes.api import Api, connect


def written(path: Path, name: str, user: dict[str, Any], **more: Any) -> Path:
    """Write a kubeconfig with one context; `more` is what else its cluster is said to have."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:6443", **more}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def connected(*files: Path) -> Api:
    return connect(None, None, {"KUBECONFIG": ":".join(map(str, files))})


def test_of_several_files_the_first_names_the_current_context(tmp_path: Path) -> None:
    """As for `kubectl`: a job must not come up in another cluster than the one that it talks to."""
    first = written(tmp_path / "first", "lab", {"token": "a"})
    second = written(tmp_path / "second", "production", {"token": "b"})
    found = connected(first, second)
    assert (found.context, found.namespace) == ("lab", "of-lab")
    assert found.client.configuration.host == "https://lab.example:6443"
    assert found.headers()["authorization"] == "Bearer a"
    first.write_text(first.read_text().replace("current-context: lab", "current-context: ''"))
    assert connected(first, second).context == "production"
