"""What differs between the spec that a job runs by and the one that is wanted: key by key. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.sensitive import masked

KeyPath = tuple[str, ...]

_MAX_VALUE_CHARS = 200  # characters of a value that are shown
_SECONDS = re.compile(r"timeout|window|duration|period")


@dataclass(frozen=True, slots=True)
class Changed:
    """A key of the spec with its old and its new value, as people may see them, and what the change makes necessary.

    `nodes` are those whose launchers have to be started again; `generation`: all processes begin again; `later`: what runs
    keeps the old value until its next generation.
    """

    key: str
    old: Any
    new: Any
    nodes: tuple[int, ...] = ()
    generation: bool = False
    later: bool = False

    def __str__(self) -> str:
        if self.old == self.new:
            return f"{self.key}: another value, which is not shown"
        return f"{self.key}: {_shown(self.key, self.old)} → {_shown(self.key, self.new)}"

    @property
    def line(self) -> str:
        """The change and what comes of it, in words."""
        return f"{self}: {self.effect}"

    @property
    def effect(self) -> str:
        """What comes of the change, in words."""
        if self.nodes:
            return f"restarts node {', '.join(map(str, self.nodes))}"
        if self.generation:
            return "a new generation"
        return "nothing to restart" + (", it holds from the next generation on" if self.later else "")

    def to_json(self) -> dict[str, Any]:
        """Return what `plan -o json` says of it."""
        return {"key": self.key, "old": self.old, "new": self.new, "restarts": list(self.nodes), "effect": self.effect}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[KeyPath]:
    """Return the keys at which two specs, as JSON has them, differ: the innermost ones."""
    return list(_differences((), old, new))


def _differences(at: KeyPath, old: Any, new: Any) -> Iterator[KeyPath]:
    whole = at in (("nodes",), ("secrets",))
    if not whole and isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*new, *(key for key in old if key not in new)]:
            yield from _differences((*at, key), old.get(key), new.get(key))
    elif old != new:
        yield at


def value_at(spec: Mapping[str, Any], path: KeyPath) -> Any:
    """Return the value of a key, None where there is none."""
    found: Any = spec
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def with_value(spec: Mapping[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    """Return `spec` with another value of a key; None takes the key away."""
    key, rest = path[0], path[1:]
    inner = spec.get(key)
    changed = with_value(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value
    return {**{name: item for name, item in spec.items() if name != key}, **({} if changed is None else {key: changed})}


def changed(path: KeyPath, old: Mapping[str, Any], new: Mapping[str, Any], **effect: Any) -> Changed:
    """Return a key's change, with values as people may see them."""
    key = ".".join(path)
    shown = [_public(path, value_at(spec, path)) for spec in (old, new)]
    return Changed(key, shown[0], shown[1], **effect)


def causes(found: Sequence[Changed] | None, nodes: set[int]) -> str:
    """Say why launchers of `nodes` have to be started again; None: it is not known what they were started with."""
    if found is None:
        return "the spec changed"
    named = [str(one) for one in found if nodes & set(one.nodes)]
    if not named:
        return (
            "its container was made with other settings or data, by another version of jobctl or by an interrupted `up`"
        )
    return "; ".join(named[:3]) + (f"; and {len(named) - 3} more" if len(named) > 3 else "")


def _public(path: KeyPath, value: Any) -> Any:
    """Return the value of the key to which `path` leads as people may see it."""
    if path[:1] == ("secrets",):
        return value  # names and places of secrets, no values
    if path == ("nodes",) and isinstance(value, Mapping):
        least, most = value.get("min"), value.get("max")
        return least if least == most else f"{least}:{most}"
    return masked(path[-1], value)


def _shown(key: str, value: Any) -> str:
    """Return a value as a line of text."""
    if value is None:
        return "unset"
    if isinstance(value, float):
        return f"{value:g}{'s' if _SECONDS.search(key.rpartition('.')[2]) else ''}"
    plain = isinstance(value, str) and value and value.isprintable() and value == value.strip()
    text = value if plain else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"
