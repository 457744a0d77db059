"""A process that is connected to many hosts has high descriptors, and a limit of them that is not for its children."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Programs that run on hosts and in containers, where nothing raises the limit.
THERE = ("jobspec/launcher/", "jobspec/allocation/", "jobspec/frameworks/programs/", "jobspec/deploy/host/scripts/")
PROBES = ("jobspec/deploy/check/probe.py", "jobspec/deploy/check/fitness/probe.py")
STARTS = {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")}


def _calls(module: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of `a.b(…)` in programs of this machine that know a module, and where they are."""
    for path in sorted((*(ROOT / "cli").rglob("*.py"), *(ROOT / "jobspec").rglob("*.py"))):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith((*THERE, *PROBES)):
            continue
        text = path.read_text()
        if module in text:
            nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            yield from ((f"{place}:{node.lineno}", node) for node in nodes if isinstance(node.func, ast.Attribute))


def test_nothing_waits_by_select_which_knows_no_high_descriptors() -> None:
    assert [place for place, call in _calls("select") if ast.unparse(call.func) == "select.select"] == []


def test_each_child_gets_the_limit_that_its_parent_began_with() -> None:
    """`for_child`, or a function of its own that calls `restore`; a function of tests is shown by what children say."""
    started = [(place, call) for place, call in _calls("subprocess") if ast.unparse(call.func) in STARTS]
    assert started
    careless = [place for place, call in started if "preexec_fn" not in {keyword.arg for keyword in call.keywords}]
    assert careless == []
