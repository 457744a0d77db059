"""The JSON Schema of the language, for editors: short forms, defaults and descriptions from the models."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.spec.durations import in_one_unit
from jobctl.jobspec.spec.model import Spec

ID = "https://jobctl.dev/schema/job-1.json"

_VARIABLE = r"\$"
# What may stand in quotes for a value that is no string, by the type of that.
_IN_QUOTES = {"integer": r"\$|^-?\d+$", "number": r"\$|^-?[\d.]+$", "boolean": r"\$|^([Tt]rue|TRUE|[Ff]alse|FALSE)$"}
_NARROW = {"pattern", "enum", "const"}
_TOLD = {"description", "default", "examples"}  # of people and editors
_AS_IS = {"default", "examples", "propertyNames", "enum", "required"}  # no schemas of values


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a spec as users write it, before interpolation."""
    schema = Spec.model_json_schema(by_alias=True, mode="validation")
    schema = _tidy(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ID, **schema}


def _tidy(value: Any) -> Any:
    """Allow `x-` keys wherever keys are fixed, and variables; drop what pydantic adds for itself, write defaults as users do."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key != "title" or not isinstance(item, str)}
    tidy = {key: item if key in _AS_IS else _tidy(item) for key, item in kept.items()}
    if tidy.get("additionalProperties", True) is not True:
        tidy["patternProperties"] = {"^x-": True}
    if isinstance(tidy.get("default"), float) and "pattern" in str(tidy):
        tidy["default"] = in_one_unit(tidy["default"])
    return _or_variable(tidy)


def _or_variable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that also takes what becomes one: `${VAR}`, and a number in quotes."""
    kind = schema.get("type")
    if not isinstance(kind, str) or (kind not in _IN_QUOTES and not (kind == "string" and schema.keys() & _NARROW)):
        return schema
    told = {key: item for key, item in schema.items() if key in _TOLD}
    value = {key: item for key, item in schema.items() if key not in _TOLD}
    return {**told, "anyOf": [value, {"type": "string", "pattern": _IN_QUOTES.get(kind, _VARIABLE)}]}
