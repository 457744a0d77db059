"""What pydantic finds wrong with a spec, in our codes and words, and what is left when the wrong values are gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jobctl.jobspec.spec.diagnostics import Diagnostic, Span, closest, nearest
from jobctl.jobspec.spec.frameworks import FRAMEWORKS, listed
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.secret_places import is_shown, may_hold_secret
from jobctl.jobspec.spec.reading.source import KeyPath, Source

_HETER = "there are no heterogeneous workers: only the legacy launcher of old Paddle starts them"
# What stands in for keys without which there is no Spec, so that rules that do not look at them can be checked.
_STAND_IN = {"name": "x", "framework": "torch"}
_MOST = 100  # nobody reads more; a file with so many is something else than a spec
_ROUNDS = 8  # a value that was wrong may have hidden others below it


def validate(
    source: Source, data: dict[str, Any], lost: Iterable[KeyPath]
) -> tuple[Spec | None, list[Diagnostic], set[KeyPath]]:
    """Return the Spec that `data` says, what is wrong with it, and the paths of values that were lost.

    Wrong values are taken out of `data` and their paths join `lost`; None if that leaves nothing to validate.
    """
    from pydantic import ValidationError

    gone = set(lost)
    found: list[Diagnostic] = []
    for where in sorted(gone, key=len):
        _take_out(data, where, gone)
    for _ in range(_ROUNDS):
        try:
            return Spec.model_validate(data), found, gone
        except ValidationError as error:
            errors = error.errors(include_url=False)
            items = [(_written(source, tuple(item["loc"])), item) for item in errors[:_MOST]]
            if len(errors) > _MOST:
                message = f"and {len(errors) - _MOST} more mistakes"
                where = _written(source, tuple(errors[_MOST]["loc"]))
                found.append(Diagnostic("error", "more-mistakes", message, source.value_span(where)))
            meant = {(*where[:-1], _meant(where)) for where, item in items if item["type"] == "extra_forbidden"}
            for where, item in items:
                if where not in gone and not (item["type"] == "missing" and where in meant):
                    found.append(describe(source, where, item))
                _mend(data, where, item["type"], gone)
            if len(errors) > _MOST:
                break
    return None, found, gone


def _meant(where: KeyPath) -> str | None:
    """Return the key that an unknown one may have been meant to be: that one is not also reported as missing."""
    from jobctl.jobspec.spec.reference import keys_at

    return nearest(str(where[-1]), keys_at(where[:-1]))


def _mend(data: dict[str, Any], where: KeyPath, kind: str, gone: set[KeyPath]) -> None:
    if kind == "extra_forbidden":
        _delete(data, where)
    elif kind == "missing" and len(where) > 1:
        _take_out(data, where[:-1], gone)
    else:
        _take_out(data, where, gone)


def _take_out(data: dict[str, Any], where: KeyPath, gone: set[KeyPath]) -> None:
    """Take the value at `where` out of `data`; the whole list if it is in one, so that other items keep their numbers."""
    keys = where[: next((n for n, part in enumerate(where) if isinstance(part, int)), len(where))]
    while keys and keys[0] not in _STAND_IN and not _delete(data, keys):
        keys = keys[:-1]
    if keys and keys[0] in _STAND_IN:
        data[str(keys[0])] = _STAND_IN[str(keys[0])]
    gone.update((where, keys))


def _delete(data: Any, where: KeyPath) -> bool:
    for part in where[:-1]:
        data = data.get(part) if isinstance(data, dict) else _item(data, part)
    if isinstance(data, dict) and where[-1] in data:
        del data[where[-1]]
        return True
    return False


def _item(data: Any, part: str | int) -> Any:
    return data[part] if isinstance(data, list) and isinstance(part, int) and part < len(data) else None


def _written(source: Source, where: KeyPath) -> KeyPath:
    """Return the path as the user wrote it: secrets may be a mapping, and keys of mappings are marked by pydantic."""
    if len(where) > 1 and where[0] == "secrets" and isinstance(where[1], int):
        names = source.keys(("secrets",))
        if names:
            where = ("secrets", [name for name in names if not name.startswith("x-")][where[1]], *where[2:])
    return where


# pydantic's kinds of errors in our codes and words. Custom ones come from scalars.bad and need no translation.
_TYPES = {
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "a string",
}


def describe(source: Source, where: KeyPath, error: Any) -> Diagnostic:
    """Return what pydantic says of the value at `where`, in our codes and words."""
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "missing":
        return _missing(source, where)
    if where[:1] == ("ps",) and str(where[-1]).startswith("heter_"):
        return Diagnostic(
            "error",
            "ps-heter",
            _HETER,
            source.key_span(where),
            "leave it out: trainers may have other devices than servers",
        )
    if kind == "extra_forbidden":
        return Diagnostic(
            "error", "unknown-key", f"unknown key `{where[-1]}`", source.key_span(where), _key_hint(where)
        )
    if where[-1:] == ("[key]",):
        return Diagnostic("error", kind, context["message"], source.key_span(where[:-1]), context["hint"])
    if kind == "two-sources":
        return Diagnostic("error", kind, context["message"], source.key_span((*where, "file")), context["hint"])
    span, hidden = source.value_span(where), may_hold_secret(where) and not is_shown(error["input"])
    if kind == "literal_error":
        return _literal(where, span, error)
    if kind == "string_pattern_mismatch":
        message = f"{'this' if hidden else '`' + error['input'] + '`'} is not a valid name for a variable"
        span = span if source.has(where) else source.key_span(where)  # in a mapping of secrets the name is the key
        return Diagnostic("error", "bad-variable", message, span, "letters, digits and `_`, no digit first")
    if kind in _TYPES:
        from jobctl.jobspec.spec.scalars import kind_of

        hint = _list_hint(error["input"]) if kind in ("tuple_type", "list_type") else None
        found = "a text" if hidden else kind_of(error["input"])
        message = f"`{_name(where)}`: expected {_TYPES[kind]}, found {found}"
        return Diagnostic("error", "wrong-type", message, span, hint)
    message = context.get("message") or error["msg"]
    if kind == "wrong-type":
        message = f"`{_name(where)}`: {message.partition(', found')[0] if hidden else message}"
    return Diagnostic("error", kind, message, span, context.get("hint"))


def _list_hint(value: object) -> str:
    return "begin each item with `- `" if isinstance(value, dict) else "write each word as an item: `[a, b]`"


def _name(where: KeyPath) -> str:
    """Return a path as users write it: `recovery.rules[0].do`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "spec"


def _missing(source: Source, where: KeyPath) -> Diagnostic:
    above = where[:-1]
    message = f"the key `{where[-1]}` is missing" + (f" in `{_name(above)}`" if above else "")
    first, *rest = FRAMEWORKS
    others = tuple(f"`{name}`" for name in rest)
    hints = {"name": "`name: my-job`", "framework": f"`framework: {first}`, {listed(others)}"}
    hint = f"add {hints[str(where[-1])]}" if not above and where[-1] in hints else None
    return Diagnostic("error", "missing-key", message, source.key_span(above), hint)


def _key_hint(where: KeyPath) -> str | None:
    from jobctl.jobspec.spec.reading.foreign_keys import HINTS
    from jobctl.jobspec.spec.reference import keys_at

    known = keys_at(where[:-1])
    word = str(where[-1])
    if len(where) == 1 and (hint := HINTS.get(word.lower().replace("-", "_"))):
        return hint
    near = closest(word, known)
    if near:
        return near
    if len(where) > 1 and word in keys_at(()):
        return f"`{word}` belongs to the top level"
    homes = [name for name in keys_at(()) if word in keys_at((name,))]
    if homes:
        return f"`{word}` belongs into `{homes[0]}`"
    return f"known keys here: {', '.join(known)}" if known and len(known) <= 12 else None


def _literal(where: KeyPath, span: Span, error: Any) -> Diagnostic:
    from jobctl.jobspec.spec.scalars import kind_of

    words = error["ctx"]["expected"].replace("'", "`")
    known = words.replace("`", "").replace(" or ", ", ").split(", ")
    near = closest(error["input"], known) if isinstance(error["input"], str) else None
    if where == ("devices", "kind") and str(error["input"]).isdigit():
        near = f"write the kind too: `gpu:{error['input']}`"
    message = f"`{_name(where)}`: expected {words}, found {kind_of(error['input'])}"
    return Diagnostic("error", "bad-value", message, span, near)
