"""What can still be said of a spec with mistakes: the rest of it, without the values that were lost.

So that one run reports mistakes of every kind: a rule that looks at a lost value is left out, all others are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from pydantic import BaseModel

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import KeyPath


class Lost(Exception):
    """Raised by a look at a value that could not be understood."""


class _View:
    """A part of a spec; values at the paths in `lost`, or around them, raise Lost."""

    __slots__ = ("_at", "_lost", "_part")

    def __init__(self, part: BaseModel, lost: frozenset[KeyPath], at: KeyPath) -> None:
        self._part, self._lost, self._at = part, lost, at

    def __getattr__(self, name: str) -> Any:
        at = (*self._at, name)
        value = getattr(self._part, name)
        below = {path for path in self._lost if path[: len(at)] == at}
        if not below:
            return value
        if at in below or not isinstance(value, BaseModel):
            raise Lost
        return _View(value, self._lost, at)


def draft(spec: Spec, lost: Iterable[KeyPath]) -> Spec:
    """Return `spec` as it may be looked at by rules: values at the paths in `lost` are not the user's."""
    paths = frozenset(lost)
    return cast(Spec, _View(spec, paths, ())) if paths else spec


def findings_of(rule: Callable[[], Iterable[Diagnostic]]) -> list[Diagnostic]:
    """Return what `rule` finds, as far as it can tell."""
    found: list[Diagnostic] = []
    with suppress(Lost):
        found.extend(rule())
    return found
