"""Objects of Kubernetes as YAML: what is written is what every reader of YAML 1.1 or 1.2 takes it for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jobctl.jobspec.render.quote import quote_yaml

Object = dict[str, Any]

# A text that stands without quotes. Go's reader knows more words than others (`y`), so short ones are quoted too.
_BARE = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,}(?:[./-][A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_WORDS = {"null", "true", "false", "yes", "off", "nan", "inf"}
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*[A-Za-z0-9]")
# A text of lines that stands as it is, below `|`.
_PLAIN_LINES = re.compile(
    r"(?=[^\s])(?:[\t\x20-\x7e\u00a0-\u2027\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*\n)+"
)


def manifest(made: Object) -> bytes:
    """Return an object as one YAML document. Raises RenderError for text that YAML cannot hold."""
    return "".join(f"{line}\n" for line in _lines(made, "")).encode()


def escaped(text: str) -> str:
    """Return `text` so that Kubernetes, which fills in `$(VAR)` in arguments and variables, leaves it what it is.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Yield a mapping or list in block style."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{indent}{_key(key)}:", item, indent + "  ")
    else:
        for item in value:
            yield from _item(item, indent)


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    # Of several line feeds at its end, `|` keeps one.
    if isinstance(value, str) and value.endswith("\n") and not value.endswith("\n\n") and _PLAIN_LINES.fullmatch(value):
        yield f"{head} |"
        yield from (f"{indent}{line}" if line else "" for line in value.split("\n")[:-1])
    elif isinstance(value, Mapping | list | tuple) and value:
        yield head
        yield from _lines(value, indent)
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple) and value:
        first, *rest = _lines(value, indent + "  ")
        yield f"{indent}- {first.removeprefix(indent + '  ')}"
        yield from rest
    else:
        yield f"{indent}- {_scalar(value)}"


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) and key.lower() not in _WORDS and len(key) > 2 else quote_yaml(key)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and value.lower() not in _WORDS else quote_yaml(value)
    if isinstance(value, bool | int):
        return json.dumps(value)
    if not value and isinstance(value, Mapping | list | tuple):
        return "{}" if isinstance(value, Mapping) else "[]"
    raise TypeError(f"no YAML for {value!r}")
