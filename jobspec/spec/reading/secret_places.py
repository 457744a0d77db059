"""Where a spec may hold a secret by mistake: no message quotes what is there, and no excerpt shows it.

What a command prints may be kept in the log of a test server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jobctl.jobspec.spec.diagnostics import Span
from jobctl.jobspec.spec.sensitive import is_sensitive

if TYPE_CHECKING:
    from jobctl.jobspec.spec.reading.source import YamlNode

# Names in the style that is usual for variables are shown, also those with a mistake: nobody could mend a word of stars.
_NAME = re.compile(r"[A-Z0-9][A-Z0-9_ -]{0,39}")
# Keys below `secrets` and `notify` whose values are none, and keys of `notify` in which only a URL would be one.
_SHOWN = {"file", "on", "format", "from_hosts", "command", "to", "from", "host", "port", "security", "user"}
_REFERENCE = re.compile(r"\$\{\w+(:?\?[^}]*)?\}|\$\w+")  # one that has a default, which may be a secret, is none
_END = 1 << 20  # behind the last column of any line


def is_shown(text: object) -> bool:
    """Say whether a message may quote what stands where the name of a secret has to be."""
    return not isinstance(text, str) or _NAME.fullmatch(text) is not None


def may_hold_secret(where: tuple[str | int, ...]) -> bool:
    """Say whether the scalar at a path is the name of a secret, or, by mistake, the secret itself."""
    if where[:1] == ("notify",):
        return not {*_SHOWN, "email"} & set(where[2:]) or "password" in where
    return (where[:1] == ("secrets",) and where[-1] != "file") or where == ("etcd", "password")


def secret_places(root: YamlNode | None) -> list[Span]:
    """Return the places of what may be a secret, of which excerpts show nothing."""
    return [_place(node) for node in (_nodes(root) if root is not None else ())]


def _place(node: YamlNode) -> Span:
    """Return where a scalar stands; one of several lines is hidden from its first line to its last."""
    span = node.span
    return span._replace(end_line=node.last, end_column=_END) if node.last > span.line else span


def _nodes(root: YamlNode) -> Iterator[YamlNode]:
    secrets = _value(root, "secrets")
    for below in (secrets, _value(root, "notify"), _value(root, "etcd", "password")):
        yield from _unnamed(below) if below is not None else ()
    names = set(_names(secrets)) if secrets is not None else set()
    for variables in (_value(root, "env"), _value(root, "build", "args")):
        yield from _values(variables, names) if variables is not None else ()


def _value(root: YamlNode, *path: str) -> YamlNode | None:
    node: YamlNode | None = root
    for key in path:
        entry = node.get(key) if node is not None and node.kind == "mapping" else None
        node = entry[1] if entry is not None else None
    return node


def _unnamed(node: YamlNode) -> Iterator[YamlNode]:
    """Yield the scalars in and below a node that are no names; a key without a value is one, too."""
    if node.kind == "scalar" and not is_shown(node.text):
        yield node
    for item in node.items:
        yield from _unnamed(item)
    for key, value in node.entries:
        if value.data() is None:
            yield from _unnamed(key)
        elif key.text not in _SHOWN and not (key.text == "email" and value.kind != "mapping"):
            yield from _unnamed(value)


def _names(secrets: YamlNode) -> Iterable[str]:
    return [key.text for key, _ in secrets.entries] or [item.text for item in secrets.items]


def _values(variables: YamlNode, secrets: set[str]) -> Iterator[YamlNode]:
    """Yield the values of variables that are secrets by their names; a reference that has no value shows none."""
    for key, value in variables.entries:
        if (key.text in secrets or is_sensitive(key.text)) and not _REFERENCE.fullmatch(value.text):
            yield value
    for item in variables.items:
        name, equals, _ = item.text.partition("=")
        if equals and (name in secrets or is_sensitive(name)):
            yield item
