"""What differs between targets is in tables: adding a target is an entry in each, and no other code asks for its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from jobctl.jobspec.operations.lifecycle.open import JOBS
from jobctl.jobspec.operations.targets.table import FINDERS
from jobctl.jobspec.operations.unsupported import UNSUPPORTED
from jobctl.jobspec.planner.job import TASKS
from jobctl.jobspec.render.artefact import RENDERERS
from jobctl.jobspec.spec.checks.targets import CHECKS
from jobctl.jobspec.spec.targets import TARGETS, PlaceKind, TargetName, traits_of
from jobctl.options import Target

ROOT = Path(__file__).parents[2]
KINDS = get_args(PlaceKind)
TABLE = "jobspec/spec/targets.py"


def test_each_target_has_its_entries() -> None:
    assert list(TARGETS) == list(get_args(TargetName)) == [target.value for target in Target]
    assert TARGETS.keys() == TASKS.keys() == RENDERERS.keys()
    assert UNSUPPORTED.keys() <= TARGETS.keys()


def test_each_kind_of_place_has_its_implementations() -> None:
    assert {traits_of(target).place for target in TARGETS} == set(KINDS)
    assert FINDERS.keys() == JOBS.keys() == CHECKS.keys() == set(KINDS)
    finders = [finder() for finder in FINDERS.values()]
    assert all(hasattr(one, name) for one in finders for name in ("known", "homes", "in_spec", "planned", "check"))


def test_only_tables_name_targets() -> None:
    found = []
    for folder in ("cli", "jobspec"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name == TABLE:
                continue
            text = path.read_text()
            if any(f'"{word}"' in text for word in (*TARGETS, *KINDS)):  # most files name none
                found += [f"{name}:{line}" for line in _comparisons(ast.parse(text))]
    assert found == []


def test_operations_ask_no_kind_of_place() -> None:
    """What differs between places is a method of `JobOnTarget` or `JobFinder` there."""
    found = []
    for folder in ("cli", "jobspec/operations"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if "in_cluster" not in text and "in_allocation" not in text:
                continue
            asked = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
            found += [
                f"{path.relative_to(ROOT)}:{node.lineno}"
                for node in asked
                if node.attr in ("in_cluster", "in_allocation")
            ]
    assert found == []


def _comparisons(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare a value with the name of a target, or of a kind of place."""
    every = [*TARGETS, *KINDS]
    for node in ast.walk(tree):
        if isinstance(node, ast.Match):
            values = [case.pattern.value for case in node.cases if isinstance(case.pattern, ast.MatchValue)]
            sides, subject = values, node.subject
        elif isinstance(node, ast.Compare):
            sides, subject = [node.left, *node.comparators], node
        else:
            continue
        if any(_is_among(side, every) for side in sides):
            about = ast.unparse(subject)
            names = [*(TARGETS if "target" in about else ()), *(KINDS if ".place" in about else ())]
            yield from (side.lineno for side in sides if _is_among(side, names))


def _is_among(side: ast.expr, names: list[str]) -> bool:
    parts = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
    return any(isinstance(part, ast.Constant) and part.value in names for part in parts)


def test_comparisons_with_targets_are_found() -> None:
    code = """
if target == "local" or plan.target not in ("compose", "ssh") or traits.place == "cluster" or word == "ssh":
    pass
match plan.target:
    case "ssh": pass
    case _: pass
"""
    assert list(_comparisons(ast.parse(code))) == [5, 2, 2, 2]
