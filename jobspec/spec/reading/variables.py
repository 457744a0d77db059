"""The values of `${VAR}` on their way into the tree, and variables that the environment passes through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobctl.jobspec.spec.diagnostics import Diagnostic, Severity, Span
from jobctl.jobspec.spec.reading.interpolate import BadInterpolation, interpolate
from jobctl.jobspec.spec.reading.secret_places import is_shown, may_hold_secret
from jobctl.jobspec.spec.reading.source import KeyPath, Source, YamlNode


def fill_in(source: Source, environ: Mapping[str, str]) -> tuple[list[Diagnostic], list[KeyPath]]:
    """Replace references in all values of the tree, those of keys with `x-` excepted.

    Returns what is wrong, and where values stay unknown.
    """
    found: list[Diagnostic] = []
    lost: list[KeyPath] = []
    filled: dict[int, bool] = {}
    for where, node in scalars(source.root):
        if "$" not in node.text and id(node) not in filled:
            continue
        if id(node) not in filled:  # an alias is met again
            filled[id(node)] = _fill_in(source, node, environ, found, may_hold_secret(where))
        if not filled[id(node)]:
            lost.append(where)
    return found, lost


def _fill_in(source: Source, node: YamlNode, environ: Mapping[str, str], found: list[Diagnostic], secret: bool) -> bool:
    def unset(name: str, text: str, at: int) -> None:
        if secret and not is_shown(name):  # a `$` in what is a secret itself
            found.append(_dollar("warning", "unset-variable", node.span))
            return
        message = f"`{name}` is not set: it becomes empty"
        hint = f"write `${{{name}:-default}}`, or `$$` for a dollar"
        found.append(Diagnostic("warning", "unset-variable", message, source.part_span(node, text, at), hint))

    try:
        node.text, node.plain = interpolate(node.text, environ, unset), False
    except BadInterpolation as bad:
        if secret and bad.code == "bad-interpolation":
            found.append(_dollar("error", bad.code, node.span))
            return False
        span = source.part_span(node, bad.text, bad.at)
        found.append(Diagnostic("error", bad.code, bad.message, span, bad.hint))
        return False
    return True


def _dollar(severity: Severity, code: str, span: Span) -> Diagnostic:
    """Return what is wrong with a `$`, in words that quote nothing."""
    message = "this value has a `$` that is no valid reference to a variable"
    return Diagnostic(severity, code, message, span, "write the name of a secret here, and not the secret itself")


def scalars(root: YamlNode | None) -> Iterator[tuple[KeyPath, YamlNode]]:
    """Yield all values of a tree with their places, those of keys with `x-` excepted."""
    look: list[tuple[KeyPath, YamlNode]] = [((), root)] if root else []
    while look:
        where, node = look.pop()
        if node.kind == "scalar":
            yield where, node
        look.extend(((*where, number), item) for number, item in enumerate(node.items))
        look.extend(((*where, key.text), value) for key, value in node.entries if not key.text.startswith("x-"))


def pass_through(data: dict[str, Any], source: Source, environ: Mapping[str, str]) -> list[Diagnostic]:
    """Fill in variables of `env`, and arguments of `build`, without a value from the environment, as in Compose."""
    env, build = data.get("env"), data.get("build")
    args = build.get("args") if isinstance(build, dict) else None
    found: list[Diagnostic] = []
    if isinstance(env, dict):
        found += _passed(env, ("env",), "so processes do not get it", source, environ)
    if isinstance(args, dict):
        found += _passed(args, ("build", "args"), _NO_ARG, source, environ)
    elif isinstance(args, list):
        data["build"] = {**build, "args": list(_passed_items(args, source, environ, found))} if build else build
    return found


_NO_ARG = "so the build does not get it"


def _passed(
    values: dict[str, Any], at: KeyPath, effect: str, source: Source, environ: Mapping[str, str]
) -> Iterator[Diagnostic]:
    for name in [name for name, value in values.items() if value is None and not name.startswith("x-")]:
        if name in environ:
            values[name] = environ[name]
            continue
        del values[name]
        yield _unset(name, effect, source.key_span((*at, name)))


def _passed_items(
    items: list[Any], source: Source, environ: Mapping[str, str], found: list[Diagnostic]
) -> Iterator[Any]:
    """Yield items `NAME=VALUE` and `NAME`, the latter with their values from the environment."""
    for number, item in enumerate(items):
        if not isinstance(item, str) or "=" in item:
            yield item
        elif item in environ:
            yield f"{item}={environ[item]}"
        else:
            found.append(_unset(item, _NO_ARG, source.value_span(("build", "args", number))))


def _unset(name: str, effect: str, span: Span) -> Diagnostic:
    message = f"`{name}` is not set here, {effect}"
    return Diagnostic("warning", "unset-variable", message, span, "give it a value, or export it")
