"""`${VAR}` in values, as Compose does it: with defaults, required variables, and `$$` for a dollar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.names import ENV_NAME

_NAME = re.compile(ENV_NAME)
_OPERATORS = (":-", "-", ":?", "?", ":+", "+")


class BadInterpolation(Exception):
    """A reference that cannot be replaced: `text` is what the value contains, from `at` on."""

    def __init__(self, code: str, message: str, text: str, at: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.text, self.at, self.hint = code, message, text, at, hint


@dataclass(frozen=True, slots=True)
class _Context:
    environ: Mapping[str, str]
    unset: Callable[[str, str, int], None]  # told name, text and place of what is not set and has no default


def interpolate(value: str, environ: Mapping[str, str], unset: Callable[[str, str, int], None]) -> str:
    """Return `value` with its references replaced. Raises BadInterpolation.

    `unset` hears of variables that are not set and have no default; they become empty, as in Compose.
    """
    if "$" not in value:
        return value
    text, _ = _text(value, 0, _Context(environ, unset), closing=False)
    return text


def _text(value: str, at: int, context: _Context, *, closing: bool, depth: int = 0) -> tuple[str, int]:
    """Return the text from `at` to the end, or (in a default) to the closing brace, and where that is."""
    parts: list[str] = []
    while at < len(value):
        if closing and value[at] == "}":
            break
        if value[at] != "$":
            stop = _next(value, at, closing)
            parts.append(value[at:stop])
            at = stop
            continue
        part, at = _reference(value, at, context, depth)
        parts.append(part)
    return "".join(parts), at


def _next(value: str, at: int, closing: bool) -> int:
    ends = [found for sign in ("$}" if closing else "$") if (found := value.find(sign, at)) >= 0]
    return min(ends, default=len(value))


def _reference(value: str, at: int, context: _Context, depth: int) -> tuple[str, int]:
    if depth > 20:
        raise BadInterpolation("bad-interpolation", "defaults nested more than 20 deep", value[at : at + 2], at)
    if value.startswith("$$", at):
        return "$", at + 2
    if value.startswith("${", at):
        return _braced(value, at, context, depth)
    name = _NAME.match(value, at + 1)
    if name is None:
        text = value[at : at + 2]
        raise BadInterpolation("bad-interpolation", f"`{text}` is not a variable", text, at, "write `$$` for a dollar")
    return _lookup(name[0], f"${name[0]}", at, context), name.end()


def _braced(value: str, at: int, context: _Context, depth: int) -> tuple[str, int]:
    end = value.find("}", at)
    text = value[at : end + 1] if end > 0 else value[at:]
    name = _NAME.match(value, at + 2)
    if name is None:
        message = f"`{text}` names no variable"
        raise BadInterpolation("bad-interpolation", message, text, at, "write `$${` for the text `${`")
    after = name.end()
    operator = next((op for op in _OPERATORS if value.startswith(op, after)), "")
    if not operator:
        if value[after : after + 1] != "}":
            message = f"`{text}` is not a valid reference"
            hint = "`${NAME}`, `${NAME:-default}` or `${NAME:?message}`; write `$${` for the text `${`"
            raise BadInterpolation("bad-interpolation", message, text, at, hint)
        return _lookup(name[0], text, at, context), after + 1
    # What is not used is not looked up: `${A:-${B:?}}` needs B only where A is not set.
    used = _uses_word(name[0], operator, context.environ)
    quiet = _Context(context.environ if used else _Anything(), context.unset if used else _ignore)
    word, close = _text(value, after + len(operator), quiet, closing=True, depth=depth + 1)
    if value[close : close + 1] != "}":
        raise BadInterpolation("bad-interpolation", f"`{text}` is not closed", text, at, "add `}`")
    if used and operator.endswith("?"):
        message = f"`{name[0]}` is not set" + (f": {word}" if word else "")
        hint = f"export {name[0]}=… or write it into `.env`"
        raise BadInterpolation("required-variable", message, value[at : close + 1], at, hint)
    return _apply(name[0], operator, word, used, context), close + 1


class _Anything(dict[str, str]):
    """An environment in which everything is set."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "x"


def _ignore(name: str, text: str, at: int) -> None:
    del name, text, at


def _uses_word(name: str, operator: str, environ: Mapping[str, str]) -> bool:
    there = name in environ and (not operator.startswith(":") or environ[name] != "")
    return there if operator.endswith("+") else not there


def _apply(name: str, operator: str, word: str, used: bool, context: _Context) -> str:
    if operator.endswith("+"):
        return word if used else ""
    return word if used else context.environ[name]


def _lookup(name: str, text: str, at: int, context: _Context) -> str:
    if name not in context.environ:
        context.unset(name, text, at)
        return ""
    return context.environ[name]
