"""A document that remembers what was read of it, so that the rest can be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]


class Document(Mapping[str, Any]):
    """A mapping of a document. A value is read by looking it up; a mapping or a list by looking up what is in it."""

    __slots__ = ("_read", "path", "raw")

    def __init__(self, raw: Mapping[str, Any], path: KeyPath = (), read: set[KeyPath] | None = None) -> None:
        self.raw, self.path = raw, path
        self._read: set[KeyPath] = set() if read is None else read

    def __getitem__(self, key: str) -> Any:
        return self._open(self.raw[key], (*self.path, key))

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def _open(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return Document(value, path, self._read)
        if isinstance(value, list) and any(isinstance(one, dict) for one in value):
            return tuple(self._open(one, (*path, place)) for place, one in enumerate(value))
        self._read.add(path)
        return tuple(value) if isinstance(value, list) else value

    def settle(self) -> None:
        """Count all of it as read: every note about it is written."""
        self._read.add(self.path)

    def unread(self) -> Iterator[tuple[KeyPath, Any]]:
        """Yield what nobody has read and says something: of a mapping that is unread as a whole, only that."""
        touched = {path[:length] for path in self._read for length in range(len(path) + 1)}
        yield from _unread(self.raw, self.path, self._read, touched)


def at(made: Any, *path: str) -> Any:
    """Return what is at a path, None if there is nothing."""
    for key in path:
        made = made.get(key) if isinstance(made, Mapping) else None
    return made


def _unread(value: Any, path: KeyPath, read: set[KeyPath], touched: set[KeyPath]) -> Iterator[tuple[KeyPath, Any]]:
    if path in read or not says_something(value):
        return
    if path not in touched or not isinstance(value, dict | list):
        yield path, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _unread(inner, (*path, key), read, touched)


def says_something(value: Any) -> bool:
    """Say whether there is more in a value than empty mappings, lists and texts."""
    if isinstance(value, dict | list):
        return any(map(says_something, value.values() if isinstance(value, dict) else value))
    return value is not None and value != ""


def _keyed(value: list[Any]) -> dict[str, Any] | None:
    """Return the mappings of a list by what tells them apart, None where nothing does."""
    names = [str(one.get("mountPath") or one.get("name") or "") for one in value if isinstance(one, dict)]
    return dict(zip(names, value, strict=True)) if all(names) and len(set(names)) == len(value) > 0 else None


def differences(value: Any, other: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield what `value` says that `other` does not say at the same place."""
    if isinstance(value, dict) and isinstance(other, dict):
        for key, inner in value.items():
            yield from differences(inner, other.get(key), (*path, key))
    elif isinstance(value, list) and isinstance(other, list) and (named := _keyed(value)):
        yield from differences(named, _keyed(other) or {}, path)
    elif value != other and says_something(value):
        yield path, value
