"""What users write for a key, in words, from the key's annotation: `integer, at least 1`."""

from __future__ import annotations

import types
import typing

from pydantic import BaseModel

from jobctl.jobspec.spec.scalars import AtLeast, Form


def form(annotation: object, metadata: typing.Sequence[object] = ()) -> str:
    """Return the values that an annotation allows, in words."""
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *more = typing.get_args(annotation)
        return form(inner, [*more, *metadata])
    return _base(annotation, metadata) + _bounds(metadata)


def _base(annotation: object, metadata: typing.Sequence[object]) -> str:
    given = [note.text for note in metadata if isinstance(note, Form)]
    if given:
        return given[-1]
    arguments = [part for part in typing.get_args(annotation) if part not in (type(None), ...)]
    origin = typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        return form(arguments[0])
    if origin is typing.Literal:
        return _either([f"`{word}`" for word in arguments])
    if origin is tuple:
        return f"list; each item: {form(arguments[0])}"
    if origin is dict:
        return f"mapping; each value: {form(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    raise TypeError(f"no words for {annotation}")


def _either(words: list[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _bounds(metadata: typing.Sequence[object]) -> str:
    for note in metadata:
        bounds = getattr(note, "func", None)
        if isinstance(bounds, AtLeast) and not any(isinstance(other, Form) and "`" in other.text for other in metadata):
            return f" from {bounds.least} to {bounds.most}" if bounds.most else f", at least {bounds.least}"
    return ""
