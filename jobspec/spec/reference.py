"""The language as its models know it: keys at a path, the reference page, the table of codes."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.pod_parts import PodSecurityContext


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
    """Return docs/spec.md: every key with its form, default and meaning."""
    lines = [
        "# The job spec",
        "",
        "Generated from the models (`python -m jobctl.jobspec.spec docs`). `jobctl schema` prints the same as JSON Schema.",
        "",
    ]
    return "\n".join([*lines, *_section(Spec, "", "The top level")])


def _section(model: type[BaseModel], prefix: str, title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield (model.__doc__ or "").strip().splitlines()[0]
    yield ""
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for name, info in _fields(model).items():
        yield f"| `{prefix}{name}` | {_default(info)} | {info.description} |"
    yield ""
    for name, info in _fields(model).items():
        below = next(models_in(info.annotation), None)
        if (
            below is not None and below.__module__ != PodSecurityContext.__module__
        ):  # Kubernetes' own reference has these
            yield from _section(below, f"{prefix}{name}.", f"`{prefix}{name}`")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ((), {}, ""):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{duration_text(value) if isinstance(value, float) else value}`"


def duration_text(seconds: float) -> str:
    """Return seconds as a user would write them."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def codes_page() -> str:
    """Return docs/diagnostics.md: the table of all codes."""
    from jobctl.jobspec.spec.codes import CODES, LATER

    lines = [
        "# Diagnostics",
        "",
        "Every error and warning of `jobctl validate` has a stable code. Generated from `jobspec/spec/codes.py`",
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
