"""Quoting: a value becomes text of another language here, and nowhere else.

Templates never quote; `finalize` of their environment is one of the functions below, so none can be forgotten.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache

from jobctl.jobspec.render.errors import RenderError


class Rendered(str):
    """Text that a template made: finished, so it is not quoted again."""

    __slots__ = ()


def quote_shell(value: object) -> str:
    """Return `value` as one word of a POSIX shell.

    Bytes that are not UTF-8 (surrogate escapes) stay what they are. Raises RenderError for what no process can get.
    """
    if isinstance(value, Rendered):
        return value
    text = str(value)
    _refuse_what_no_process_receives(text)
    return shlex.quote(text)


def quote_compose(value: object) -> str:
    """Return `value` as a YAML flow node that Compose reads back unchanged.

    Text, numbers, booleans, and tuples of these. Raises RenderError for text that YAML cannot hold.
    """
    if isinstance(value, Rendered):
        return value
    if isinstance(value, str):
        return _compose_text(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(quote_compose, value)) + "]"
    raise TypeError(f"no YAML for {value!s} of type {type(value).__name__}")


# What a YAML stream must not hold, or what some parsers take for a line break or drop: DEL and C1 (with NEL),
# U+2028, U+2029, the byte order mark and the non-characters. JSON escapes C0 itself, and every JSON escape is
# one of YAML; only characters beyond U+FFFF must stay as they are: YAML has no surrogate pairs.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

_json = json.JSONEncoder(ensure_ascii=False).encode


def quote_yaml(text: str) -> str:
    """Return `text` as a YAML scalar that is read back unchanged. Raises RenderError for text that YAML cannot hold."""
    quoted = _json(text)
    if not quoted.isascii() or "\x7f" in quoted:
        _refuse_surrogates(text)
        quoted = _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
    _refuse_what_no_process_receives(text)
    return quoted


@lru_cache(maxsize=4096)  # most values of a job are the same on all its nodes
def _compose_text(text: str) -> str:
    return quote_yaml(text).replace("$", "$$")  # Compose interpolates what it reads


# What terminals take for orders, colours above all: the escape sequences CSI and OSC.
_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")

# What shows nowhere, or turns other text around: controls (but for tab and line feed), bidirectional overrides, halves
# of surrogate pairs.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(value: object) -> str:
    """Return `value` as text of which a reader sees all, for a page that escapes it besides."""
    return _INVISIBLE.sub(_shown, _TERMINAL.sub("", str(value)))


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else f"\\u{code:04x}"


def mount_option(fields: tuple[tuple[str, str], ...]) -> str:
    """Return the value of docker's option `--mount`: one line of CSV. Raises RenderError for paths it cannot hold."""
    return ",".join(_csv_field(f"{name}={value}" if value else name) for name, value in fields)


def _csv_field(field: str) -> str:
    if "\r" in field:  # Go's CSV reader drops it before a line feed
        raise RenderError("unmountable-path", f"docker cannot mount a path with a carriage return: {field!r}")
    if any(character in field for character in ',"\n'):
        return '"' + field.replace('"', '""') + '"'
    return field


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RenderError(
            "not-utf-8",
            f"a compose file cannot hold text that is not UTF-8: {text!r}",
            "write it as UTF-8, or use `--target ssh`",
        ) from None


MAX_ARGUMENT_BYTES = 131_071  # bytes of one argument or variable: MAX_ARG_STRLEN of Linux less the final NUL


def _refuse_what_no_process_receives(text: str) -> None:
    if "\0" in text:
        raise RenderError("nul-character", f"no argument or variable can hold the character NUL: {text!r}")
    if len(text) * 4 > MAX_ARGUMENT_BYTES and len(text.encode(errors="surrogatepass")) > MAX_ARGUMENT_BYTES:
        raise RenderError(
            "too-long",
            f"no argument or variable can be longer than {MAX_ARGUMENT_BYTES} bytes, name included: {text[:40]!r}...",
            "put it into a file; JOBCTL_LAUNCH holds all of the job's arguments, `setup` and device names",
        )
