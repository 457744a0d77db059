"""Files, classes and functions stay small enough to be read at once, and each class has a name of its own.

That holds for tests, benchmarks and examples, too. What is larger is listed, with the size that it may have and the reason.
The lists may only shrink.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.tools.syntax import statements

ROOT = Path(__file__).parents[2]
# Lines, lines, lines without the docstring, parameters without `self`.
FILE, CLASS, FUNCTION, PARAMETERS = 400, 300, 40, 6

_SCENARIO = "one scenario, told in the order in which it happens"
_EXAMPLE = "a whole script, to be read from top to bottom and copied"
_LOOP = "the training loop of an example, in the order in which it runs"
# A file, or a file and what is in it: how large it may be, and why.
LARGE: dict[str, tuple[int, str]] = {
    "examples/paddle-wide-deep/train.py": (405, _EXAMPLE),
    "examples/torch-wide-deep/train.py": (429, _EXAMPLE),
    "examples/paddle-resnet-elastic/train.py train": (41, _LOOP),
    "examples/paddle-resnet-static/train.py train": (49, _LOOP),
    "examples/paddle-resnet/train.py train": (48, _LOOP),
    "examples/paddle-wide-deep/train.py train": (46, _LOOP),
    "examples/torch-elastic/train.py train": (41, _LOOP),
    "examples/torch-resnet/train.py train": (46, _LOOP),
    "tests/report/stories.py rich": (83, "one story, event by event"),
    "tests/fleet/files/test_data.py test_data_is_sent_once_and_kept_between_jobs": (49, _SCENARIO),
    "tests/fleet/life/test_life.py test_a_whole_life": (46, _SCENARIO),
    "tests/kube/test_moving.py test_to_a_cluster_and_back": (48, _SCENARIO),
    "tests/kube/test_operators.py test_from_up_over_stop_to_down": (43, _SCENARIO),
    "tests/launcher/standby/seen.py main": (74, "one table: a line for each thing that a rank can see"),
    "tests/launcher/run/test_environment.py test_the_whole_environment": (47, "one table: a line for each variable"),
    "tests/render/test_paddle_operator.py test_below_paddle_operator_servers_and_trainers_begin_and_end_together": (
        45,
        _SCENARIO,
    ),
    "tests/supervise/worlds/faults.py fault": (57, "one branch for each fault"),
    "tests/tools/commands.py _serve": (46, "one loop, whose parts share what the process must close after a fork"),
}
MANY_PARAMETERS: dict[str, tuple[int, str]] = {
    "tests/fleet/fleet.py __init__": (7, "each is a property of one fleet, by keyword, and most tests name none"),
    "tests/kube/server.py ask": (8, "the parts of a request to an API server, each with a default"),
    "tests/kube/store.py apply": (7, "the parts of server-side apply, as the API has them"),
}
COMMANDS = "cli/commands/"  # Typer reads a command's options from its parameters, so these may be many and long
FOLDERS = ("cli", "jobspec", "tests", "benchmarks", "examples")
PLAN, SPEC = "jobspec/plan/", "jobspec/spec/"  # what the plan makes of a part of the spec is called as that part
# Joined, the launcher is a program that runs alone: it has its own of what stands for the same on this side.
ALONE = "jobspec/launcher/"


@dataclass(frozen=True)
class Definition:
    """A class or a function of a file: `lines` without the docstring of a function, `parameters` without `self`."""

    name: str
    kind: type[ast.AST]
    lines: int
    parameters: int
    outermost: bool


@cache
def _sources() -> dict[str, tuple[int, tuple[Definition, ...]]]:
    """Return the lines and the definitions of each file, by its name; every file is parsed once."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            found[path.relative_to(ROOT).as_posix()] = (len(text.splitlines()), tuple(_definitions(ast.parse(text))))
    return found


def _definitions(tree: ast.Module) -> Iterator[Definition]:
    outermost = set(tree.body)
    for node in statements(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            parameters = _parameters(node) if isinstance(node, ast.FunctionDef) else 0
            yield Definition(node.name, type(node), _lines(node), parameters, node in outermost)


def _lines(node: ast.ClassDef | ast.FunctionDef) -> int:
    first = node.body[0]
    has_docstring = ast.get_docstring(node, clean=False) is not None and isinstance(node, ast.FunctionDef)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def _parameters(node: ast.FunctionDef) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"])) + bool(node.args.vararg) + bool(node.args.kwarg)


def test_what_is_larger_than_a_reader_likes_is_listed() -> None:
    found = {}
    for name, (lines, definitions) in _sources().items():
        if lines > FILE:
            found[name] = lines
        for one in definitions:
            most = CLASS if one.kind is ast.ClassDef else FUNCTION
            if one.lines > most and not name.startswith(COMMANDS):
                found[f"{name} {one.name}"] = one.lines
    assert _off_the_list(found, LARGE) == {}


def test_functions_with_many_parameters_are_listed() -> None:
    found = {
        f"{name} {one.name}": one.parameters
        for name, (_, definitions) in _sources().items()
        if not name.startswith(COMMANDS)
        for one in definitions
        if one.parameters > PARAMETERS
    }
    assert _off_the_list(found, MANY_PARAMETERS) == {}


def _off_the_list(found: dict[str, int], listed: dict[str, tuple[int, str]]) -> dict[str, str]:
    """Return what is larger than the list allows, and what is listed without need."""
    larger = {
        name: f"{size}, not {listed[name][0] if name in listed else 'listed'}"
        for name, size in found.items()
        if name not in listed or size > listed[name][0]
    }
    return larger | dict.fromkeys(listed.keys() - found.keys(), "not large any more: take it off the list")


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for name, (_, definitions) in _sources().items():
        if name.startswith("jobspec/") and not name.startswith(ALONE):
            for one in definitions:
                if one.kind is ast.ClassDef and one.outermost and not one.name.startswith("_"):
                    places[one.name].append(name)
    several = {name: where for name, where in places.items() if len(where) > 1}
    pairs = {
        name
        for name, (one, *more) in several.items()
        if len(more) == 1 and one.startswith(PLAN) and more[0].startswith(SPEC)
    }
    assert {name: where for name, where in several.items() if name not in pairs} == {}
