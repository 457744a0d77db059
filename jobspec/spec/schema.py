"""The JSON Schema of the language, for editors: short forms, defaults and descriptions from the models."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from jobctl.jobspec.spec.durations import in_one_unit
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.scalars import SOME, AtLeast, Positive

ID = "https://jobctl.dev/schema/job-1.json"

_INT = "0|[1-9][0-9]*|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = r"(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
_BOOL = "[Tt]rue|TRUE|[Ff]alse|FALSE"
_TOLD = {"description", "default", "examples"}  # of people and editors
_AS_IS = {"default", "examples", "propertyNames", "enum", "required"}  # no schemas of values


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a spec as users write it, before interpolation."""
    schema = Spec.model_json_schema(by_alias=True, mode="validation", schema_generator=_WithBounds)
    schema = _tidy(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ID, **schema}


class _WithBounds(GenerateJsonSchema):
    """Knows the bounds that our own validators check."""

    def function_after_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of what a validator takes."""
        made = super().function_after_schema(schema)
        check = schema["function"]["function"]
        if isinstance(check, AtLeast):
            most = {} if check.most is None else {"maximum": check.most}
            return {**made, "minimum": check.least, **most}
        return {**made, "exclusiveMinimum": 0} if isinstance(check, Positive) else made


def _more_than_nothing(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a size (of at least one byte) or duration (in units) without those that are nothing."""
    kept = {key: item for key, item in schema.items() if key != "exclusiveMinimum"}
    whole = {"minimum": 1} if "minimum" in kept else {}
    return {**kept, **whole, "pattern": f"^{SOME}{schema['pattern'][1:]}"}


def _tidy(value: Any) -> Any:
    """Allow `x-` keys wherever keys are fixed, and variables; drop what pydantic adds for itself, write defaults as users do."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key != "title" or not isinstance(item, str)}
    tidy = {key: item if key in _AS_IS else _tidy(item) for key, item in kept.items()}
    if "patternProperties" in tidy:  # of pydantic: names of a form
        tidy["additionalProperties"] = False
    if tidy.get("additionalProperties", True) is not True:
        tidy["patternProperties"] = {**tidy.get("patternProperties", {}), "^x-": True}
    if "exclusiveMinimum" in tidy and "pattern" in tidy:
        tidy = _more_than_nothing(tidy)
    if isinstance(tidy.get("default"), float) and "pattern" in str(tidy):
        tidy["default"] = in_one_unit(tidy["default"])
    return _or_variable(tidy)


def _or_variable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that also takes what becomes one: `${VAR}`, and a number in quotes."""
    kind = schema.get("type")
    if isinstance(schema.get("pattern"), str):
        return {**schema, "pattern": rf"\$|{schema['pattern']}"}
    words = schema.keys() & {"enum", "const"}
    if kind not in ("integer", "number", "boolean") and not (kind == "string" and words):
        return schema
    pattern = r"\$" if kind == "string" else rf"\$|^({_in_quotes(schema)})$"
    if not words:
        return {**schema, "type": [kind, "string"], "pattern": pattern}
    told = {key: item for key, item in schema.items() if key in _TOLD}
    value = {key: item for key, item in schema.items() if key not in _TOLD}
    return {**told, "anyOf": [value, {"type": "string", "pattern": pattern}]}


def _in_quotes(schema: dict[str, Any]) -> str:
    """Return the pattern of a number, or of true and false, that is written in quotes. It has no upper bound."""
    if "enum" in schema:
        return "|".join(str(item) for item in schema["enum"])
    if schema["type"] == "boolean":
        return _BOOL
    least = schema.get("exclusiveMinimum", schema.get("minimum", -2))
    some = "(?=[^eE]*[1-9])" if schema["type"] == "number" else "(?=.*[1-9a-fA-F])"
    some = some if least > 0 or "exclusiveMinimum" in schema else ""
    number = _FLOAT if schema["type"] == "number" else _INT
    sign = r"\+?" if least >= -1 else "[-+]?"
    return ("-1|" if least == -1 else "") + f"{some}{sign}({number})"
