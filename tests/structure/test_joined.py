"""The launcher and the program of allocations are files joined into one: no name there means two things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from jobctl.jobspec.render.launcher import ALLOCATION, ORDER

ROOT = Path(__file__).parents[2]
PROGRAMS = {"launcher": [("launcher", name) for name in ORDER], "allocation": list(ALLOCATION)}


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


@pytest.mark.parametrize("parts", PROGRAMS.values(), ids=PROGRAMS)
def test_no_two_files_of_a_program_define_a_name_differently(parts: Sequence[tuple[str, str]]) -> None:
    meanings: dict[str, dict[str, str]] = defaultdict(dict)
    for package, name in parts:
        for statement in ast.parse((ROOT / "jobspec" / package / f"{name}.py").read_text(encoding="utf-8")).body:
            for defined in _defined(statement):
                meanings[defined][name] = ast.unparse(statement)
    assert {name: places for name, places in meanings.items() if len(set(places.values())) > 1} == {}
