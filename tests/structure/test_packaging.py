"""What is in the repository is what is installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from tests.tools.syntax import statements

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def test_every_package_is_listed() -> None:
    found = {
        ".".join((name, *init.parent.relative_to(ROOT / directory).parts))
        for name, directory in SETUPTOOLS["package-dir"].items()
        for init in (ROOT / directory).rglob("__init__.py")
    }
    assert sorted(SETUPTOOLS["packages"]) == sorted(found)


def test_a_plain_install_brings_no_framework() -> None:
    plain = [line for line in requires("jobctl") or [] if "extra ==" not in line]
    names = {line.split(">")[0].split("=")[0].strip().lower() for line in plain}
    assert not names & {"torch", "paddlepaddle", "mindspore", "numpy", "scikit-learn", "kubernetes"}


def test_all_that_is_imported_is_declared() -> None:
    """Otherwise an install breaks when a package of others needs it no more. Programs for images import what those have."""
    project, known, wrong = PROJECT["project"], packages_distributions(), []
    always, cluster = map(_names, (project["dependencies"], project["optional-dependencies"]["kubernetes"]))
    for path in sorted(path for folder in ("cli", "jobspec") for path in (ROOT / folder).rglob("*.py")):
        declared = always | cluster if path.is_relative_to(ROOT / "jobspec/deploy/kubernetes") else always
        for module in _third_party(path) if path.parent != ROOT / "jobspec/frameworks/programs" else ():
            if not declared & {_name(one) for one in known.get(module, [module])}:
                wrong.append(f"{path.relative_to(ROOT)}: {module}")
    assert wrong == []


def _third_party(path: Path) -> set[str]:
    """Return the modules, by their first names, that a file imports, and that are neither Python's nor ours."""
    found = set()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return {name.split(".")[0] for name in found} - {*sys.stdlib_module_names, "jobctl"}


def _names(requirements: list[str]) -> set[str]:
    return {_name(re.split(r"[<>=!~\[; ]", one)[0]) for one in requirements}


def _name(distribution: str) -> str:
    return re.sub("[-_.]+", "-", distribution).lower()


def test_extras() -> None:
    assert sorted(PROJECT["project"]["optional-dependencies"]) == [
        "dev",
        "etcd",
        "examples",
        "kubernetes",
        "torch",
    ]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel from a copy of what git tracks, so that no stale build directory takes part."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(source)]
    subprocess.run(build, capture_output=True, check=True)
    return dist


def test_the_wheel_holds_every_module_and_template(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {"jobctl/py.typed"}
    for package, directory in SETUPTOOLS["package-dir"].items():
        for path in (ROOT / directory).rglob("*"):
            if path.suffix in (".py", ".j2", ".sh", ".html", ".css", ".js") and "__pycache__" not in path.parts:
                wanted.add(f"{package.replace('.', '/')}/{path.relative_to(ROOT / directory).as_posix()}")
    assert names == wanted


def test_the_sdist_can_be_built_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "LICENSE", "README.md", "jobspec/launcher/main.py", "templates/local.sh.j2"} <= names
