"""From a file to a Spec, in phases: read, parse, interpolate, validate, check. All errors of a phase at once."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobctl.jobspec.spec.diagnostics import Diagnostic, Span, closest, has_errors, in_order
from jobctl.jobspec.spec.interpolate import BadInterpolation, interpolate
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.overrides import apply_override
from jobctl.jobspec.spec.source import BadSource, Node, Source, parse, read_text


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of a spec file: `spec` is None where there are errors.

    `directory` is the absolute folder of the file, to which its relative paths refer.
    """

    spec: Spec | None
    diagnostics: tuple[Diagnostic, ...]
    directory: Path
    source: Source

    @property
    def ok(self) -> bool:
        """Whether the spec is valid."""
        return self.spec is not None


@dataclass(frozen=True, slots=True)
class Named:
    """The name in a spec file, None where it cannot be told."""

    name: str | None
    diagnostics: tuple[Diagnostic, ...]


def load_spec(path: Path, *, environ: Mapping[str, str], overrides: Sequence[str] = ()) -> Loaded:
    """Load the spec in `path`; never raises for what is wrong with it.

    `environ` is interpolated, above `.env` beside the spec. `overrides` are `KEY=VALUE` (dotted keys, YAML values).
    """
    return load_text(path, None, environ=environ, overrides=overrides)


def load_text(path: Path, text: str | None, *, environ: Mapping[str, str], overrides: Sequence[str] = ()) -> Loaded:
    """Load a spec from `text` as if it stood in `path` (None: from the file itself)."""
    directory = Path(os.path.abspath(path)).parent
    file = str(path)
    try:
        text = read_text(path, file) if text is None else text
        root, found = parse(text, file)
        root = _with_overrides(_mapping(root, file), overrides)
    except BadSource as bad:
        return Loaded(None, in_order(bad.diagnostics), directory, Source(file, bad.text, None))
    source = Source(file, text, root)
    if has_errors(found):
        # A repeated key says nothing about the others: tell all there is to tell.
        _, more = _validate(source, root.data())
        return Loaded(None, in_order([*found, *more]), directory, source)
    known = {**_dot_env(directory), **environ}
    found += _interpolate(root, known)
    if has_errors(found):
        return Loaded(None, in_order(found), directory, source)
    data = root.data()
    found += _pass_through(data, source, known)
    spec, problems = _validate(source, data)
    if spec is None:
        return Loaded(None, in_order([*found, *problems]), directory, source)
    return _checked(spec, found, directory, source)


def _checked(spec: Spec, found: list[Diagnostic], directory: Path, source: Source) -> Loaded:
    from jobctl.jobspec.spec.checks import check_spec

    found = [*found, *check_spec(spec, source, directory)]
    if has_errors(found):
        return Loaded(None, in_order(found), directory, source)
    if spec.env_file:
        merged = {**_env_files(spec, directory), **spec.env}
        spec = spec.model_copy(update={"env": merged})
    return Loaded(spec, in_order(found), directory, source)


def read_name(path: Path) -> Named:
    """Return the name of the job in `path`, whatever else is wrong with the spec."""
    file = str(path)
    try:
        root = _mapping(parse(read_text(path, file), file)[0], file)
    except BadSource as bad:
        return Named(None, bad.diagnostics)
    entry = root.get("name")
    if entry is not None and entry[1].kind == "scalar" and "$" not in entry[1].text:
        return Named(entry[1].text, ())
    loaded = load_spec(path, environ=os.environ)
    if loaded.spec is not None:
        return Named(loaded.spec.name, ())
    at = [d for d in loaded.diagnostics if d.severity == "error"]
    return Named(None, tuple(at))


def _mapping(root: Node | None, file: str) -> Node:
    start = Span(file, 1, 1, 1, 1)
    if root is None or (root.kind == "scalar" and not root.text):
        message = f"`{file}` is empty"
        raise BadSource(Diagnostic("error", "empty-spec", message, start, "`jobctl init` writes one to start from"))
    if root.kind != "mapping":
        raise BadSource(
            Diagnostic(
                "error", "wrong-type", "a spec is a mapping of keys to values", root.span, "begin with `name: my-job`"
            )
        )
    return root


def _with_overrides(root: Node, overrides: Sequence[str]) -> Node:
    for override in overrides:
        apply_override(root, override)
    return root


# Interpolation.


def _dot_env(directory: Path) -> dict[str, str]:
    path = directory / ".env"
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    return {name: value or "" for name, value in dotenv_values(path, interpolate=False).items()}


def _env_files(spec: Spec, directory: Path) -> dict[str, str]:
    from dotenv import dotenv_values

    merged: dict[str, str] = {}
    for name in spec.env_file:
        path = directory / Path(name).expanduser()
        if path.is_file():
            merged.update({key: value or "" for key, value in dotenv_values(path, interpolate=False).items()})
    return merged


def _interpolate(root: Node, environ: Mapping[str, str]) -> list[Diagnostic]:
    """Replace references in all values of the tree, those of keys with `x-` excepted."""
    found: list[Diagnostic] = []
    seen: set[int] = set()
    for node in _scalars(root):
        if "$" not in node.text or id(node) in seen:
            continue
        seen.add(id(node))

        def unset(name: str, text: str, node: Node = node) -> None:
            message = f"`{name}` is not set: it becomes empty"
            hint = f"write `${{{name}:-default}}`, or `$$` for a dollar"
            found.append(Diagnostic("warning", "unset-variable", message, node.span, hint))

        try:
            node.text, node.plain = interpolate(node.text, environ, unset), False
        except BadInterpolation as bad:
            found.append(Diagnostic("error", bad.code, bad.message, node.span, bad.hint))
    return found


def _scalars(root: Node) -> Iterator[Node]:
    look, seen = [root], set()
    while look:
        node = look.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.kind == "scalar":
            yield node
        look.extend(node.items)
        look.extend(value for key, value in node.entries if not key.text.startswith("x-"))


def _pass_through(data: dict[str, Any], source: Source, environ: Mapping[str, str]) -> list[Diagnostic]:
    """Fill in variables of `env` without a value from the environment, as in Compose."""
    env = data.get("env")
    found: list[Diagnostic] = []
    if isinstance(env, dict):
        for name in [name for name, value in env.items() if value is None]:
            if name in environ:
                env[name] = environ[name]
                continue
            del env[name]
            span = source.key_span(("env", name))
            message = f"`{name}` is not set here, so processes do not get it"
            found.append(Diagnostic("warning", "unset-variable", message, span, "give it a value, or export it"))
    return found


# Validation.


def _validate(source: Source, data: Any) -> tuple[Spec | None, list[Diagnostic]]:
    from pydantic import ValidationError

    try:
        return Spec.model_validate(data), []
    except ValidationError as error:
        return None, [_diagnostic(source, item) for item in error.errors(include_url=False)]


# pydantic's kinds of errors in our codes and words. Custom ones come from scalars.bad and need no translation.
_TYPES = {
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "a string",
}


def _diagnostic(source: Source, error: Any) -> Diagnostic:
    kind, where, context = error["type"], tuple(error["loc"]), error.get("ctx") or {}
    if kind == "missing":
        return _missing(source, where)
    if kind == "extra_forbidden":
        hint = _key_hint(where)
        return Diagnostic("error", "unknown-key", f"unknown key `{where[-1]}`", source.key_span(where), hint)
    span = _span_of(source, where)
    if kind == "literal_error":
        return _literal(where, span, error)
    if kind == "string_pattern_mismatch":
        message = f"`{error['input']}` is no name of a variable"
        return Diagnostic("error", "bad-variable", message, span, "letters, digits and `_`, no digit first")
    if kind in _TYPES:
        from jobctl.jobspec.spec.scalars import kind_of

        hint = "write each word as an item: `[a, b]`" if kind in ("tuple_type", "list_type") else None
        message = f"`{_name(where)}`: expected {_TYPES[kind]}, found {kind_of(error['input'])}"
        return Diagnostic("error", "wrong-type", message, span, hint)
    message = context.get("message") or error["msg"]
    if kind == "wrong-type":
        message = f"`{_name(where)}`: {message}"
    return Diagnostic("error", kind, message, span, context.get("hint"))


def _span_of(source: Source, where: tuple[str | int, ...]) -> Span:
    if len(where) == 2 and where[0] == "env" and not source.has(where):
        return source.key_span(where)
    span = source.value_span(where)
    return span if span.end_column > span.column or span.end_line > span.line else source.key_span(where)


def _name(where: tuple[str | int, ...]) -> str:
    """Return a path as users write it: `recovery.rules[0].do`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "spec"


def _missing(source: Source, where: tuple[str | int, ...]) -> Diagnostic:
    above = where[:-1]
    message = f"the key `{where[-1]}` is missing" + (f" in `{_name(above)}`" if above else "")
    span = source.key_span(above)
    hints = {"name": "`name: my-job`", "framework": "`framework: torch`, `paddle` or `mindspore`"}
    return Diagnostic("error", "missing-key", message, span, hints.get(str(where[-1])) if not above else None)


def _key_hint(where: tuple[str | int, ...]) -> str | None:
    from jobctl.jobspec.spec.reference import keys_at

    known = keys_at(where[:-1])
    word = str(where[-1])
    near = closest(word, known)
    if near:
        return near
    elsewhere = [name for name in keys_at(()) if name == word]
    if elsewhere and len(where) > 1:
        return f"`{word}` belongs to the top level"
    return f"known keys here: {', '.join(known)}" if known and len(known) <= 12 else None


def _literal(where: tuple[str | int, ...], span: Span, error: Any) -> Diagnostic:
    from jobctl.jobspec.spec.scalars import kind_of

    words = error["ctx"]["expected"].replace("'", "`")
    near = (
        closest(error["input"], words.replace("`", "").replace(" or ", ", ").split(", "))
        if isinstance(error["input"], str)
        else None
    )
    message = f"`{_name(where)}`: expected {words}, found {kind_of(error['input'])}"
    return Diagnostic("error", "bad-value", message, span, near)
