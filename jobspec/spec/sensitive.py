"""What may let somebody in, by its name or by its form, and how it is shown to people.

Without Pydantic, as names.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "(not shown)"
_PART = "…"  # in place of a part of a text

# What such a value is called. The second line counts only where a name ends: `AUTH_TYPE` lets nobody in.
_NAME = re.compile(
    r"secret|pass_?w|pass_?phrase|credential|authorization|bearer|web_?hook|connection_?string|(database|db)_ur[il]"
    r"|((?<![a-z])((ssh|db|user|root)?pass|dsn|(basic|http|o)?auth|pat)|(?<=_)pwd)_?\d*(?!\w)"
    r"|(api|private|access|account|storage|sas|ssh|signing|encryption|license|service|wandb|openai)_?key"
)
# Lower-case options end so where they name a column of data: `--input_key prompt`.
_KEY = re.compile(r"_KEY(?![\w-])")
# Names that let nobody in: of tokens that a model reads, of counts of them, of passes over data, of other keys.
_OPEN = re.compile(
    r"(?<![a-z])(max|min|num|n|total|per|eos|bos|pad|unk)_?tokens?(?![a-z])"
    r"|(?<![a-z])(new|special|batch|seq|prompt)_?tokens(?![a-z])"
    r"|tokens?_?(per|len|length|count|budget|limit|size)(?![a-z])"
    r"|token(i[sz]|ed)"
    r"|(?<![a-z])(max|min|num|n|per|first|second|third|one|two|single|multi|forward|backward)_?pass(?![a-z])"
)
_OPEN_KEY = re.compile(
    r"(PUBLIC|SORT|PRIMARY|FOREIGN|CACHE|PARTITION|GROUP|TEXT|IMAGE|LABEL|INPUT|OUTPUT|TARGET|PROMPT|DATA|ID|CAPTION)_KEY"
)

# Tokens that say what they are: of GitHub, GitLab, Hugging Face …
KNOWN_TOKEN = re.compile(
    r"(?<![^\W_])(gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{24,}"
    r"|sk-(proj-|ant-api\d\d-)?[A-Za-z0-9]{20,}|xox[abprs]-[\w-]{16,})"
)
# A password that was not quoted may hold any character: where a `:` comes first, all up to the last `@` may be one.
_USER = re.compile(r"(?<=://)(?:[^/?#\s:]*:\S*|[^/?#\s]*)@")
_PARAMETER = re.compile(r"(?<=[?&;#])(?P<name>[\w.~%+-]+)=[^&;#\s\"']+")
_SIGNATURE = re.compile(r"(.*[-_.])?(sig|signature|hmac|jwt|key|code)", re.IGNORECASE)


def is_sensitive(text: str) -> bool:
    """Say whether what has this name, or what this text says, may let somebody in."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-.]", "_", text).lower()
    left = _OPEN.sub("", words)
    return bool("token" in left or _NAME.search(left) or _KEY.search(_OPEN_KEY.sub("", text)))


def masked(name: str, value: Any) -> Any:
    """Return the value of a key as people may see it."""
    if value is not None and is_sensitive(name):
        return HIDDEN
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, Mapping):
        return {key: masked(key, item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return list(masked_words(value))
    return value


def masked_words(words: Sequence[Any]) -> Iterator[Any]:
    """Yield the elements of a list as people may see them: of an option that looks secret its value is not, either."""
    hides = False
    for word in words:
        sensitive = isinstance(word, str) and is_sensitive(word)
        yield HIDDEN if hides or sensitive else masked("", word)
        hides = sensitive and word.startswith("-") and not re.search(r"[=\s]", word)


def masked_text(text: str) -> str:
    """Return a text without the tokens in it, and without user, password and signature of the URLs in it."""
    return _PARAMETER.sub(_parameter, KNOWN_TOKEN.sub(_PART, _USER.sub(f"{_PART}@", text)))


def _parameter(found: re.Match[str]) -> str:
    name = found["name"]
    return f"{name}={_PART}" if is_sensitive(name) or _SIGNATURE.fullmatch(name) else found[0]
