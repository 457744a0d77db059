"""What a scalar means where a key expects a number, a size, a duration …: YAML 1.2 words, one parser for each.

Scalars come as text, just as the user wrote them (source.py); values that are no text come from defaults and tests.
By hand, as libraries for sizes and durations accept more forms than the language has, and differ on what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.durations import is_duration, parse_duration

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)

_IDS = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*", re.ASCII)

_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

# A slip of the finger would plan for billions of processes, and take all memory for it.
MOST_NODES = 65_536
MOST_DEVICES = 4_096

MOST_BYTES = 2**63 - 1  # the engine counts in 64 bits


def bad(code: str, message: str, hint: str | None = None) -> PydanticCustomError:
    """Return the error of a value, in our words: the code is one of checks/codes.py."""
    return PydanticCustomError(code, "{message}", {"message": message, "hint": hint})


def kind_of(value: object) -> str:
    """Return what a value is, in the words of messages."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = str(value)
    return f"`{text if len(text) <= 40 else text[:39] + '…'}`"


def expected(what: str, value: object, hint: str | None = None) -> PydanticCustomError:
    """Return the error of a value of the wrong type."""
    return bad("wrong-type", f"expected {what}, found {kind_of(value)}", hint)


def parse_int(value: object) -> object:
    """Return a whole number: decimal, `0o17` or `0x1f`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _INT.fullmatch(value) and len(value) < 20:
        return int(value, 0)
    hint = "write it without the leading zero" if isinstance(value, str) and re.fullmatch(r"0\d+", value) else None
    raise expected("a whole number", value, hint)


def parse_float(value: object) -> object:
    """Return a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and _FLOAT.fullmatch(value) and len(value) < 40 and float(value) < float("inf"):
        return float(value)
    raise expected("a number", value)


def parse_bool(value: object) -> object:
    """Return true or false: YAML 1.2 knows no `yes` and no `off`."""
    if isinstance(value, bool):
        return value
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise expected("`true` or `false`", value)


def is_text(value: str) -> bool:
    """Say whether UTF-8 can hold it: what Python makes of other bytes, and half of a character, it cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_str(value: object) -> object:
    """Return text."""
    if isinstance(value, str):
        if "\0" in value:
            raise bad("nul-character", "a NUL character cannot be part of any value that a process receives")
        if not is_text(value):
            hint = "a variable of the environment holds other bytes"
            raise bad("not-text", "the value is not UTF-8 text", hint)
        return value
    raise expected("a string", value)


def parse_size(value: object) -> object:
    """Return bytes: `512m`, `8g`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise expected("a size", value, "write it as `512m` or `8g`")
    size = float(match[1]) * _UNITS[match[2].lower()]
    if size > MOST_BYTES:
        raise bad("out-of-range", f"{kind_of(value)} is more than any machine has", "leave it out for no limit")
    return int(size)


def duration_value(value: object) -> object:
    """Return seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return parse_duration(value) if isinstance(value, str) else _no_duration(value)
    except ValueError:
        return _no_duration(value)


def _no_duration(value: object) -> float:
    hint = "write it as `30s`, `10m` or `1h30m`"
    if isinstance(value, str) and _FLOAT.fullmatch(value):
        hint = f"write the unit: `{value}s` or `{value}m`"
    elif isinstance(value, str) and is_duration(value):
        hint = "100 years, `36500d`, are the most"
    raise expected("a duration", value, hint)


def parse_ids(value: object) -> object:
    """Return the numbers of `0-3,6`, or of a list."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, list):
        return _each_once([_number(item) for item in value], "the list")
    if not isinstance(value, str) or not _IDS.fullmatch(value):
        raise expected("device numbers", value, 'write them as "0-3,6"')
    ids: list[int] = []
    for part in value.split(","):
        first, _, last = part.partition("-")
        ids += range(int(first), int(last or first) + 1)
        if len(ids) > MOST_DEVICES:
            break
    return _each_once(ids, f"`{value}`")


def _number(value: object) -> int:
    """Return the number of a device."""
    number = parse_int(value)
    assert isinstance(number, int)
    if number < 0:
        raise bad("bad-value", f"devices are numbered from 0 on, so there is no {number}")
    return number


def _each_once(ids: list[int], what: str) -> tuple[int, ...]:
    if len(ids) > MOST_DEVICES:
        raise bad("bad-value", f"more than {MOST_DEVICES} devices")
    if len(set(ids)) != len(ids) or not ids:
        raise bad("bad-value", f"{what} names a device twice, or none")
    return tuple(ids)


@dataclass(frozen=True)
class Form:
    """What users write where a key takes this value: in the words of docs/spec.md, and for JSON Schema.

    `schema` has what the type itself does not tell. Its patterns are of Python's language and of ECMAScript's.
    """

    text: str
    schema: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        """Return a hash, which `typing` needs: a schema has none."""
        return hash(self.text)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        """Return the JSON Schema of the value."""
        return {**handler(core), **self.schema}


@dataclass(frozen=True)
class AtLeast:
    """A lower bound (and an upper one) of what `what` names."""

    least: int
    what: str
    most: int | None

    def __call__(self, value: float) -> float:
        """Return `value` if it is within the bounds."""
        if value < self.least:
            raise bad("out-of-range", f"{self.what} must be at least {self.least}, not {value:g}")
        if self.most is not None and value > self.most:
            raise bad("out-of-range", f"{self.what} must be at most {self.most}, not {value:.0f}")
        return value


def at_least(least: int, what: str, most: int | None = None) -> Any:
    """Return a validator of a lower bound (and of an upper one), in our words."""
    return AtLeast(least, what, most)


@dataclass(frozen=True)
class Positive:
    """Refuses nothing at all of what `what` names."""

    what: str

    def __call__(self, value: float | None) -> float | None:
        """Return `value` if it is more than nothing."""
        if value is not None and value <= 0:
            raise bad("out-of-range", f"{self.what} must be more than nothing")
        return value


def positive(what: str) -> Any:
    """Return a validator that refuses nothing at all of something, in our words."""
    return Positive(what)


# For JSON Schema, what the parsers above take.
_SIZES = {
    "type": ["number", "string"],
    "minimum": 0,
    "maximum": MOST_BYTES,
    "pattern": r"^[0-9]+(\.[0-9]+)?\s*[bkmgtBKMGT]?([iI]?[bB])?$",
}
DURATION = r"(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+(\.[0-9]+)?s)?([0-9]+ms)?"
SOME = "(?=.*[1-9])"  # before the pattern of a size or duration: more than nothing
_NUMBERS = {
    "type": ["integer", "string"],
    "minimum": 0,
    "maximum": 99999,
    "pattern": f"^{_IDS.pattern}$".replace(r"\d", "[0-9]"),
}

# What ends up as text anyway may be written without quotes.
Text = Annotated[str, BeforeValidator(parse_str), Form("string", {"type": ["string", "number", "boolean"]})]
Int = Annotated[int, BeforeValidator(parse_int, json_schema_input_type=int), Form("integer")]
Float = Annotated[float, BeforeValidator(parse_float, json_schema_input_type=float), Form("number")]
Bool = Annotated[bool, BeforeValidator(parse_bool, json_schema_input_type=bool), Form("`true` or `false`")]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Form("size, such as `512m` or `8g`", _SIZES),
]
Duration = Annotated[
    float,
    BeforeValidator(duration_value),
    Form("duration, such as `30s`, `10m` or `1h30m`", {"type": "string", "pattern": f"^{DURATION}$"}),
]
Ids = Annotated[
    tuple[int, ...],
    BeforeValidator(
        parse_ids,
        json_schema_input_type=Annotated[Any, WithJsonSchema(_NUMBERS)]
        | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)],
    ),
    Form('device numbers, such as `"0-3,6"`, or a list of integers'),
]
