"""A cluster for a test: a spec is rendered as users do it, and its pods are started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent)]

from pods import Cluster, needs_namespaces  # noqa: E402


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Return what renders a spec and makes a cluster for it; nothing of it is left behind."""
    problem = needs_namespaces()
    if problem:
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)
    made: list[Cluster] = []

    def make(
        spec: Path, *more: str, secrets: dict[str, str] | None = None, environ: dict[str, str] | None = None
    ) -> Cluster:
        out = tmp_path / "rendered"
        argv = [sys.executable, "-m", "jobctl", "render", str(spec), "--target", "kubernetes", "--out", str(out), *more]
        subprocess.run(argv, check=True, env={**os.environ, **(environ or {})})
        made.append(Cluster(tmp_path, out / "manifests", secrets))
        return made[-1]

    yield make
    for one in made:
        one.close()
