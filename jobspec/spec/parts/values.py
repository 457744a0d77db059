"""What several keys take: ports, paths, names of variables, texts that name something, and lists that may be one text."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.names import ENV_NAME
from jobctl.jobspec.spec.scalars import Form, Int, Text, bad


def _port(value: int) -> int:
    if not 1 <= value <= 65535:
        raise bad("out-of-range", f"a port is between 1 and 65535, not {value}")
    return value


def _absolute_target(value: str) -> str:
    if not value.startswith("/"):
        raise bad("relative-target", f"`{value}` is not an absolute path in the container")
    return value


def _something(value: str) -> str:
    if not value.strip():
        raise bad("bad-value", "an empty text names nothing", "leave it out")
    return value


def _words(what: object) -> BeforeValidator:
    return BeforeValidator(short.words, json_schema_input_type=what)


_ENDPOINT = r"^([\w.-]+|\[[^\[\]\s]+\]):0*[1-9][0-9]{0,4}$"
_Endpoint = Annotated[Text, Form("string", {"type": "string", "pattern": _ENDPOINT})]
ABSOLUTE = Form("absolute path", {"type": "string", "pattern": "^/"})
_VARIABLE = Form("string", {"type": "string", "pattern": f"^{ENV_NAME}$"})

Texts = Annotated[tuple[Text, ...], _words(Text | list[Text]), Form("string, or list of strings")]
Some = Annotated[Text, AfterValidator(_something), Form("string", {"pattern": r"[^\s]"})]
SomeTexts = Annotated[tuple[Some, ...], _words(Some | list[Some]), Form("string, or list of strings")]
Endpoints = Annotated[tuple[_Endpoint, ...], _words(_Endpoint | list[_Endpoint]), Form("string, or list of strings")]
Port = Annotated[Int, AfterValidator(_port), Form("integer from 1 to 65535", {"minimum": 1, "maximum": 65535})]
AbsolutePath = Annotated[Text, AfterValidator(_absolute_target), ABSOLUTE]
VariableName = Annotated[Text, BeforeValidator(short.variable), _VARIABLE]
