"""What all models of the language have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from jobctl.jobspec.spec.scalars import expected


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
            return {key: item for key, item in value.items() if not key.startswith("x-")}
        if isinstance(value, cls):
            return value
        raise expected("a mapping", value)
