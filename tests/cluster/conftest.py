"""A cluster for a test: a spec is rendered as users do it, and its pods are started."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.machine import missing
from tests.tools import commands
from tests.tools.frameworks import IMAGE_PYTHON, Name, python_of

from .containers import Containers
from .controllers import pods_of
from .namespaces import Namespaces, lacking
from .pods import Cluster, Machine

PATIENCE = 120.0  # seconds for rendering
FRAMEWORKS: tuple[Name, ...] = ("paddle", "paddle-ps", "mindspore")


@pytest.fixture(scope="module")
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Return where the pods of a module run: where its `PODS` says, or JOBCTL_PODS.

    Where there can be no fleet, pods that would be containers are namespaces, unless JOBCTL_FLEET=required.
    """
    wanted = os.environ.get("JOBCTL_PODS") or request.module.PODS
    required = os.environ.get("JOBCTL_FLEET") == "required"
    problem = missing()
    if sysconfig.get_python_version() != IMAGE_PYTHON:
        problem = f"the image's Python is {IMAGE_PYTHON}, and cannot import what is installed for another"
    if wanted == "containers" and problem and required:
        pytest.fail(problem)
    if wanted == "containers" and not problem:
        for name in FRAMEWORKS:
            python_of(name)
        yield Containers(request.getfixturevalue("hosts_of")(2))
        return
    if why := lacking():
        (pytest.fail if required else pytest.skip)(why)
    yield Namespaces()


@pytest.fixture
def cluster(tmp_path: Path, machine: Machine) -> Iterator[Callable[..., Cluster]]:
    """Return what renders a spec and makes a cluster for it; nothing of it is left behind."""
    made: list[Cluster] = []

    def make(
        spec: Path,
        framework: Name | None = None,
        secrets: dict[str, str] | None = None,
        environ: dict[str, str] | None = None,
        **more: str,
    ) -> Cluster:
        out = tmp_path / "rendered"
        told = {**machine.overrides(framework), **more}
        overrides = [word for key, value in told.items() for word in ("--set", f"{key}={value}")]
        argv = ("render", str(spec), "--target", "kubernetes", "--out", str(out), *overrides)
        done = commands.run(argv, Path.cwd(), {**os.environ, **(environ or {})}, PATIENCE)
        assert done.returncode == 0, done.stderr
        made.append(Cluster(tmp_path, out / "manifests", machine, pods_of, secrets))
        return made[-1]

    yield make
    for one in made:
        one.close()
