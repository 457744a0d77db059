"""Patterns as in `.dockerignore`: the last one that matches a path, or a folder above it, decides.

Docker's own matcher comes with all of its SDK, which `validate` must not pay for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby


class Patterns:
    """An ordered list of patterns; one that begins with `!` takes back what earlier ones match."""

    def __init__(self, lines: Iterable[str]) -> None:
        found = [(line.startswith("!"), _parts(line.removeprefix("!"))) for line in lines]
        self._patterns = [(back, parts) for back, parts in found if parts]

    def match(self, path: str) -> bool:
        """Say whether `path`, relative and with `/`, is matched and not taken back."""
        return next((not back for back, found in self._groups if found.fullmatch(path)), False)

    def takes_back_below(self, folder: str) -> bool:
        """Say whether a path below `folder`, which is matched, may be taken back."""
        return self._is_asked_below(folder, back=True)

    def may_match_below(self, folder: str) -> bool:
        """Say whether a path below `folder` may be matched."""
        return self._is_asked_below(folder, back=False)

    def _is_asked_below(self, folder: str, *, back: bool) -> bool:
        at = _parts(folder)
        return any(takes == back and _may_be_below(parts, at) for takes, parts in self._patterns)

    @cached_property
    def _groups(self) -> list[tuple[bool, re.Pattern[str]]]:
        """The patterns, last first, as few expressions as possible."""
        runs = groupby(reversed(self._patterns), key=lambda pattern: pattern[0])
        return [(back, re.compile("|".join(_expression(parts) for _, parts in run), re.DOTALL)) for back, run in runs]


def at_any_depth(patterns: Iterable[str]) -> list[str]:
    """Return patterns in order, those that have no slash, except at their end, repeated for all folders below.

    One that is empty, as a variable that is not set makes it, matches nothing.
    """
    found: list[str] = []
    for pattern in patterns:
        sign, named = ("!", pattern.strip()[1:]) if pattern.strip().startswith("!") else ("", pattern.strip())
        if name := named.strip("/"):
            found += [f"{sign}{name}"] if "/" in named.rstrip("/") else [f"{sign}{name}", f"{sign}**/{name}"]
    return found


def _parts(pattern: str) -> list[str]:
    parts: list[str] = []
    for part in pattern.strip().split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def _expression(parts: Sequence[str]) -> str:
    """Return what matches the same as `parts`, and all below it."""
    folders = "".join("(?:[^/]+/)*" if part == "**" else f"{_component(part)}/" for part in parts[:-1])
    return f"{folders}{'.+' if parts[-1] == '**' else _component(parts[-1])}(?:/.*)?"


def _component(part: str) -> str:
    """Return the expression of one component: `*`, `?`, `[…]`, and `\\` before what means itself."""
    return "".join(_token(token) for token in _TOKENS.findall(part))


_TOKENS = re.compile(r"\\.|\*+|\?|\[\^?\]?[^\]]*\]|.", re.DOTALL)


def _token(token: str) -> str:
    if token.startswith("*"):
        return "[^/]*"
    if token == "?":
        return "[^/]"
    if token.startswith("[") and token.endswith("]") and len(token) > 2:
        return _one_of(token[1:-1])
    return re.escape(token[1:] if len(token) == 2 and token[0] == "\\" else token)


def _one_of(named: str) -> str:
    """Return the expression of one of the characters that `[…]` names. A range that runs backwards has none, as in a shell."""
    sign, named = ("^", named[1:]) if named.startswith("^") else ("", named)
    parts = [part for part in re.findall(".-.|.", named, re.DOTALL) if part[0] <= part[-1]]
    inside = "".join("-".join(map(re.escape, (part[0], part[2]) if len(part) > 1 else part)) for part in parts)
    return f"[{sign}{inside}]" if inside else "[^/]" if sign else "(?!)"


def _may_be_below(parts: Sequence[str], folder: Sequence[str]) -> bool:
    """Say whether a pattern may match something below `folder`; of `**` at its begin that is not asked for."""
    if parts[0] == "**":
        return False
    for part, name in zip(parts, folder, strict=False):
        if part == "**":
            return True
        if not re.fullmatch(_component(part), name, re.DOTALL):
            return False
    return len(parts) > len(folder)
