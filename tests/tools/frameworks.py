"""Interpreters of the frameworks that do not share an environment with the tests: each in one of its own, in a cache.

They lie outside of the checkout. `python -m tests.tools.frameworks` makes those that are missing, and so do tests where
JOBCTL_FRAMEWORKS=required.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

Name = Literal["paddle", "paddle-ps", "mindspore", "jax"]

IMAGE_PYTHON = "3.11"  # of the fleet's image: Debian 12's
PATIENCE = 1800  # seconds for downloading half a gigabyte
MARKER = "complete"  # written last: an environment without it may be half of one


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of: a module of this version, by these packages."""

    module: str
    version: str
    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Its place in the cache: named after version and Python, so that a new version is a new environment."""
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jobctl-tests"
        python = sysconfig.get_python_version() + sys.base_prefix.replace("/", "-")
        return root / f"{self.module}-{self.version}-{python}"


RECIPES: dict[Name, Recipe] = {
    # etcd3 is what Paddle's launcher speaks to etcd with.
    "paddle": Recipe("paddle", "3.3.1", ("paddlepaddle==3.3.1", "scikit-learn==1.9.1", "etcd3==0.12.0")),
    # The last whose wheel has parameter servers; with a newer protobuf it cannot set their strategy.
    "paddle-ps": Recipe("paddle", "3.0.0", ("paddlepaddle==3.0.0", "scikit-learn==1.9.1", "protobuf==4.25.8")),
    "mindspore": Recipe("mindspore", "2.10.0", ("mindspore==2.10.0", "scikit-learn==1.9.1")),
    "jax": Recipe("jax", "0.10.2", ("jax[cpu]==0.10.2", "scikit-learn==1.9.1")),
}


class Impossible(Exception):
    """An environment that cannot be made here, and why."""


def need_packages(*names: str) -> None:
    """Skip unless these packages of the extra `examples` are installed here; importing them to see takes seconds.

    In a module, before its first test, or in a test.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the extra `examples` is not installed: {' '.join(missing)}", allow_module_level=True)


def need_image_python() -> None:
    """Skip unless packages that are installed here can be imported in the fleet's image."""
    if sysconfig.get_python_version() != IMAGE_PYTHON:
        pytest.skip(f"the image's Python is {IMAGE_PYTHON}, and cannot import what is installed for another")


def python_of(name: Name) -> Path:
    """Return the interpreter that has the framework; skip (or fail, if it is required) where there can be none."""
    made = _made(name)
    if isinstance(made, str):
        (pytest.fail if os.environ.get("JOBCTL_FRAMEWORKS") == "required" else pytest.skip)(made)
    return made


def site_packages(name: Name) -> Path:
    """Return the folder of its packages, to be lent to hosts whose Python is the same; skip as `python_of` does."""
    return python_of(name).parents[1] / "lib" / f"python{IMAGE_PYTHON}" / "site-packages"


def lent_packages(*names: Name) -> dict[str, Path]:
    """Return the folders of the packages of those frameworks that hosts can be lent."""
    if sysconfig.get_python_version() != IMAGE_PYTHON:
        return {}
    return {name: site_packages(name) for name in names if not isinstance(_made(name), str)}


@cache
def _made(name: Name) -> Path | str:
    """Return the interpreter, or why there is none. It is made only if it is required: that loads half a gigabyte."""
    recipe = RECIPES[name]
    there = (recipe.folder / MARKER).exists() or os.environ.get("JOBCTL_FRAMEWORKS") == "required" or _works(recipe)
    if not there:
        return f"{name} is not installed for the tests; `python -m tests.tools.frameworks` does that"
    try:
        return environment(recipe)
    except Impossible as why:
        return f"no environment with {name}: {why}"


def environment(recipe: Recipe) -> Path:
    """Return the interpreter of an environment, made now if there is none. Raises Impossible."""
    folder = recipe.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MARKER).exists():
            if not _works(recipe):
                _make(recipe)
            (folder / MARKER).touch()
        _collect_rarely(folder)
    return folder / "bin" / "python"


def _collect_rarely(folder: Path) -> None:
    """Have the interpreter of an environment, and those that are lent its packages, look for garbage rarely."""
    wanted = Path(__file__).with_name("collect_rarely.py").read_bytes()
    for packages in folder.glob("lib/python*/site-packages"):
        path = packages / "sitecustomize.py"
        if not path.exists() or path.read_bytes() != wanted:
            path.with_suffix(".new").write_bytes(wanted)
            path.with_suffix(".new").rename(path)


def _make(recipe: Recipe) -> None:
    python = str(recipe.folder / "bin" / "python")
    shutil.rmtree(recipe.folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(recipe.folder))
    _run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *recipe.packages)
    _run(python, "-c", f"import {recipe.module}, sklearn")


def _works(recipe: Recipe) -> bool:
    """Say whether somebody made it by hand."""
    try:
        _run(str(recipe.folder / "bin" / "python"), "-c", f"import {recipe.module}, sklearn")
    except Impossible:
        return False
    return True


def _run(*argv: str) -> None:
    # What PYTHONPATH names is for this interpreter, not for the new one.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Impossible(str(error)) from error
    if done.returncode:
        raise Impossible("\n".join([" ".join(argv), *done.stderr.splitlines()[-5:]]))


if __name__ == "__main__":
    try:
        for one in RECIPES.values():
            print(environment(one))
    except Impossible as why:
        sys.exit(str(why))
