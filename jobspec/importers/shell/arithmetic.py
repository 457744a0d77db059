"""Sums of the shell: `i<8`, `i++`, `2 * $N + 1`, on whole numbers."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from jobctl.jobspec.importers.shell.strings import MOST_ROUNDS

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_STEP = re.compile(r"(?:(\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(\+\+|--))")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)\s*([-+*]?)=(?!=)\s*(.+)", re.DOTALL)
MAX_NUMBER = 1 << 62


def value(text: str, numbers: Mapping[str, str]) -> int:
    """Return the value of a sum; names stand for what `numbers` says. Raises ValueError for what it cannot tell."""
    plain = re.sub(r"\$\{(\w+)\}|\$(\w+)", r"\1\2", text).strip()
    if len(plain) > 200:
        raise ValueError("too long")
    try:
        tree = ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError("no sum") from None
    return _value(tree, numbers)


def _value(node: ast.expr, numbers: Mapping[str, str]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and re.fullmatch(r"-?\d{1,18}", numbers.get(node.id, "")):
        return int(numbers[node.id])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, numbers)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _sum(node, numbers)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return int(_COMPARE[type(node.ops[0])](_value(node.left, numbers), _value(node.comparators[0], numbers)))
    raise ValueError("no sum that can be told")


def _sum(node: ast.BinOp, numbers: Mapping[str, str]) -> int:
    try:
        result = _BINARY[type(node.op)](_value(node.left, numbers), _value(node.right, numbers))
    except ZeroDivisionError:
        raise ValueError("a division by zero") from None
    if abs(result) > MAX_NUMBER:
        raise ValueError("too large")
    return result


def assigned(text: str, numbers: Mapping[str, str]) -> tuple[str, int]:
    """Return the variable that `i=0`, `i++` or `i+=2` sets, and its value. Raises ValueError."""
    if step := _STEP.fullmatch(text.strip()):
        name, sign = (step[2], step[1]) if step[2] else (step[3], step[4])
        return name, value(name, numbers) + (1 if sign == "++" else -1)
    match = _ASSIGN.fullmatch(text.strip())
    if match is None:
        raise ValueError("nothing is set")
    name, sign, rest = match.groups()
    return name, value(f"{name}{sign}({rest})" if sign else rest, numbers)


def sequence(words: Sequence[str], known_numbers: Mapping[str, str]) -> str:
    """Return what `seq` prints: LAST, FIRST LAST, or FIRST STEP LAST; nothing where that cannot be told."""
    try:
        numbers = [value(word, known_numbers) for word in words if word != "-w"]
    except ValueError:
        return ""
    if not 1 <= len(numbers) <= 3:
        return ""
    first, last = (1, *numbers)[-2] if len(numbers) < 3 else numbers[0], numbers[-1]
    step = numbers[1] if len(numbers) == 3 else 1
    if not step or abs(last - first) // abs(step) > MOST_ROUNDS:
        return ""
    return " ".join(map(str, range(first, last + (1 if step > 0 else -1), step)))
