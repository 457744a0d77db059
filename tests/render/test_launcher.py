"""The one launcher that hosts get holds what the files of jobspec/launcher hold, and runs on the oldest Python."""

from __future__ import annotations

import ast
import collections
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from jobctl.jobspec.render.launcher import ORDER, launcher

JOINED = ast.parse(launcher())


def code(tree: ast.Module) -> list[str]:
    """Return what a file says beside its docstring and its imports, those for type checkers included."""
    kept = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)]
    return [ast.unparse(node) for node in kept if "TYPE_CHECKING" not in ast.unparse(node).splitlines()[0]]


def rooms() -> list[ast.Module]:
    folder = files("jobctl.jobspec.launcher")
    return [ast.parse(folder.joinpath(f"{name}.py").read_text()) for name in ORDER]


def test_it_holds_every_statement_in_order() -> None:
    assert code(JOINED) == [statement for room in rooms() for statement in code(room)]


def names(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def test_no_two_files_define_one_name() -> None:
    defined = collections.Counter(name for room in rooms() for node in room.body for name in names(node))
    assert [name for name, times in defined.items() if times > 1] == []


def test_every_name_is_defined_in_it(tmp_path: Path) -> None:
    (tmp_path / "launcher.py").write_bytes(launcher())
    argv = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select",
        "F",
        "--target-version",
        "py38",
        str(tmp_path),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_its_syntax_is_that_of_the_oldest_python() -> None:
    ast.parse(launcher(), feature_version=(3, 8))


def test_a_heading_names_the_file_that_follows() -> None:
    lines = launcher().decode().splitlines()
    headings = [line.split()[2].rstrip("-") for line in lines if line.startswith("# --- ")]
    assert headings == [f"launcher/{name}.py" for name in ORDER]
    at = lines.index("class MajorityLease:")
    assert [line.split()[2] for line in lines[:at] if line.startswith("# --- ")][-1] == "launcher/peers/lease.py"
