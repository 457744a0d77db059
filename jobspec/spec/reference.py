"""The language as its models know it: the keys at a path, and the pages of docs/ that are generated."""

from __future__ import annotations

import re
import textwrap
import typing
from collections.abc import Iterator, Sequence

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jobctl.jobspec.spec.durations import in_one_unit
from jobctl.jobspec.spec.forms import form
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.parts.pod import PodSecurityContext


def keys_at(path: Sequence[str | int]) -> list[str]:
    """Return the keys of the mapping at `path` of a spec, none where there are no fixed ones."""
    model: type[BaseModel] | None = Spec
    for part in path:
        if model is None:
            return []
        if isinstance(part, int) or (part not in _fields(model) and _is_map(model)):
            continue
        info = _fields(model).get(part)
        model = next(models_in(info.annotation), None) if info else model
    if model is None:
        return []
    return [name for name in _fields(model) if not (model.__name__ == "Secret" and name == "name")]


def _is_map(model: type[BaseModel]) -> bool:
    return model.__name__ in ("Secret", "UlimitPart")


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, however they are wrapped."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from models_in(part)


def spec_page() -> str:
    """Return docs/spec.md: every key with its meaning, the values it takes, its default and an example."""
    lines = [
        "# The job spec",
        "",
        "All keys of `job.yaml`. `jobctl schema` prints them as JSON Schema, for editors; what depends on other keys, files or",
        "hosts only `jobctl validate` checks. `jobctl init` writes a spec to start from. Keys that begin with `x-` are ignored,",
        "and YAML anchors work.",
        "",
        "This page is generated from the models: `python -m jobctl.jobspec.spec docs`.",
        "",
        "| key | meaning |",
        "|---|---|",
        *(f"| [`{name}`](#{name}) | {_sentence(info)} |" for name, info in _fields(Spec).items()),
        "",
    ]
    return "\n".join([*lines, *_section(Spec, "", "Top level")])


def _section(model: type[BaseModel], path: str, title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield (model.__doc__ or "").strip().splitlines()[0]
    yield ""
    parts = [(name, info, _part(info)) for name, info in _fields(model).items()]
    for name, info, part in parts:
        yield from _entry(f"{path}{name}", name, info, part)
    for name, _, part in parts:
        if part is not None:
            yield from _section(part, f"{path}{name}.", f"Keys of `{path}{name}`")


def _entry(path: str, name: str, info: FieldInfo, part: type[BaseModel] | None) -> Iterator[str]:
    meaning, _, default = (info.description or "").partition(" Default: ")
    below = f" ([its keys](#keys-of-{path.replace('.', '')}))" if part is not None else ""
    yield f"### `{path}`"
    yield ""
    yield from textwrap.wrap(meaning, 120, break_long_words=False, break_on_hyphens=False)
    yield ""
    yield from _item(f"Values: {form(info.annotation, info.metadata)}{below}")
    yield from _item(f"Default: {default.removesuffix('.') or _default(info)}")
    yield from _item(f"Example: `{_example(name, info)}`")
    yield ""


def _item(text: str) -> list[str]:
    return textwrap.wrap(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _sentence(info: FieldInfo) -> str:
    return re.split(r"(?<=\.) ", info.description or "", maxsplit=1)[0]


def _part(info: FieldInfo) -> type[BaseModel] | None:
    """Return the model below a key, none where Kubernetes' own reference has its keys."""
    below = next(models_in(info.annotation), None)
    return None if below is None or below.__module__ == PodSecurityContext.__module__ else below


def _example(name: str, info: FieldInfo) -> str:
    value = (info.examples or [None])[0]
    flow = isinstance(value, list | dict)
    text = yaml.safe_dump({name: value}, default_flow_style=flow, width=1000, sort_keys=False).strip()
    return text[1:-1] if flow else text


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "none (required)"
    value = info.get_default(call_default_factory=True)
    if value is None or value in ((), {}, ""):
        return "the defaults of its keys" if value == {} and _part(info) is not None else "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{in_one_unit(value) if isinstance(value, float) else value}`"


def codes_page() -> str:
    """Return docs/diagnostics.md: the table of all codes."""
    from jobctl.jobspec.spec.checks.codes import CODES, LATER

    lines = [
        "# Diagnostics",
        "",
        "Every error and warning of `jobctl validate` has a stable code. Generated from `jobspec/spec/checks/codes.py`",
        "(`python -m jobctl.jobspec.spec docs`). Warnings alone leave a spec valid: exit code 0.",
        "",
        "| code | severity | meaning |",
        "|---|---|---|",
    ]
    rows = [f"| `{code}` | {severity} | {meaning} |" for code, (severity, meaning) in sorted(CODES.items())]
    more = [
        "",
        "## Planning and rendering",
        "",
        "`plan`, `render` and `up` may find more, and say it with one of these codes (or one of those above).",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| `{code}` | {meaning} |" for code, meaning in sorted(LATER.items())),
    ]
    return "\n".join([*lines, *rows, *more, ""])
