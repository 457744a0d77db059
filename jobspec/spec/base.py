"""What all models of the language have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from jobctl.jobspec.spec.scalars import expected


def without_extensions(value: Any) -> Any:
    """Return a mapping without the keys that begin with `x-`, anything else as it is."""
    return {key: item for key, item in value.items() if not key.startswith("x-")} if isinstance(value, dict) else value


class Part(BaseModel):
    """A mapping of the spec: frozen, no unknown keys, and keys that begin with `x-` are ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,
        use_attribute_docstrings=False,
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _without_extensions(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return without_extensions(value)
        if isinstance(value, cls):
            return value
        raise expected("a mapping", value)
