"""What names and amounts look like in Kubernetes: its API server refuses others, or an operator makes no pods of them.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and …/labels/, and the form of quantities.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator

from jobctl.jobspec.spec.scalars import Form, Text, bad

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_AMOUNT = r"[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?"
_OURS = ("jobctl.", "app.kubernetes.io/managed-by")

# For JSON Schema: numbers and `true` need no quotes. No `maxLength`: a variable's default may be long.
_PLAIN = {"type": ["string", "number", "boolean"], "minimum": 0}
_OBJECT = {**_PLAIN, "pattern": f"^(?=.{{1,253}}$){_DOMAIN}$"}
_KEY = {"type": "string", "pattern": f"^((?=.{{1,253}}/){_DOMAIN}/)?(?=.{{1,63}}$){_WORD}$"}

OBJECT_HINT = "lower-case letters, digits, `-` and `.`, a letter or digit at both ends"
_LABEL_HINT = "lower-case letters, digits and `-`; at most 63 characters"
_WORD_HINT = "letters, digits, `-`, `_` and `.`, a letter or digit at both ends; at most 63 characters"
_KEY_HINT = f"`NAME` or `DOMAIN/NAME`; a name has {_WORD_HINT}"


def is_object(value: str) -> bool:
    """Say whether an object may be called so: a claim, a secret, a service account."""
    return len(value) <= 253 and re.fullmatch(_DOMAIN, value) is not None


def _is_label(value: str) -> bool:
    return len(value) <= 63 and re.fullmatch(_LABEL, value) is not None


def _is_word(value: str) -> bool:
    return len(value) <= 63 and re.fullmatch(_WORD, value) is not None


def _is_key(value: str) -> bool:
    domain, slash, name = value.rpartition("/")
    return _is_word(name) and (is_object(domain) if slash else True)


def _is_amount(value: str) -> bool:
    return re.fullmatch(_AMOUNT, value) is not None


def _form(what: str, holds: Callable[[str], bool], hint: str) -> AfterValidator:
    def check(value: str) -> str:
        if not holds(value):
            raise bad("bad-value", f"`{value}` is not a valid {what}", hint)
        return value

    return AfterValidator(check)


def _not_ours(value: str) -> str:
    if value.startswith(_OURS):
        raise bad("bad-value", f"`{value}` is what jobctl itself knows its objects by", "choose another name")
    return value


Namespace = Annotated[
    Text,
    _form("name of a namespace", _is_label, _LABEL_HINT),
    Form(
        f"string: {_LABEL_HINT}",
        {"type": ["string", "integer", "boolean"], "minimum": 0, "pattern": f"^(?=.{{1,63}}$){_LABEL}$"},
    ),
]
ObjectName = Annotated[
    Text, _form("name of an object in a cluster", is_object, OBJECT_HINT), Form(f"string: {OBJECT_HINT}", _OBJECT)
]
QueueName = Annotated[
    Text,
    _form("name of a queue", _is_word, _WORD_HINT),
    Form(f"string: {_WORD_HINT}", {**_PLAIN, "pattern": f"^(?=.{{1,63}}$){_WORD}$"}),
]
Key = Annotated[Text, _form("key of a label or taint", _is_key, _KEY_HINT), Form("`NAME` or `DOMAIN/NAME`", _KEY)]
OwnKey = Annotated[
    Key,
    AfterValidator(_not_ours),
    Form(
        "`NAME` or `DOMAIN/NAME`",
        {**_KEY, "pattern": rf"^(?!jobctl\.|app\.kubernetes\.io/managed-by)({_KEY['pattern'][1:-1]})$"},
    ),
]
LabelValue = Annotated[
    Text,
    _form("value of a label or taint", lambda value: not value or _is_word(value), _WORD_HINT),
    Form(
        f"string: {_WORD_HINT}",
        {**_PLAIN, "pattern": f"^(?=.{{0,63}}$)({_WORD})?$"},
    ),
]
ResourceName = Annotated[
    Text, _form("name of a resource", _is_key, "as in `nvidia.com/gpu`"), Form("name, such as `nvidia.com/gpu`", _KEY)
]
Amount = Annotated[
    Text,
    _form("amount of a resource", _is_amount, "as in `1`, `500m` or `16Gi`"),
    Form("amount, such as `16Gi`", {**_PLAIN, "pattern": f"^{_AMOUNT}$"}),
]
