"""The JSON Schema of the language, for editors: short forms, defaults and descriptions from the models."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.spec.durations import in_one_unit
from jobctl.jobspec.spec.model import Spec

ID = "https://jobctl.dev/schema/job-1.json"


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a spec as users write it, before interpolation."""
    schema = Spec.model_json_schema(by_alias=True, mode="validation")
    schema = _tidy(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ID, **schema}


def _tidy(value: Any) -> Any:
    """Allow `x-` keys wherever keys are fixed, drop what pydantic adds for itself, write defaults as users do."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    tidy = {key: _tidy(item) for key, item in value.items() if key != "title" or not isinstance(item, str)}
    if tidy.get("additionalProperties") is False:
        tidy["patternProperties"] = {"^x-": True}
    if isinstance(tidy.get("default"), float) and "pattern" in str(tidy):
        tidy["default"] = in_one_unit(tidy["default"])
    return tidy
