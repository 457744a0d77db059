"""What jobs and variables may be called.

Without Pydantic: commands that name a running job need nothing else of the language.
"""

from __future__ import annotations

import re

NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# What a variable with a secret value is called.
_SENSITIVE = re.compile(r"secret|passw|passphrase|credential|(api|private|access)[-_]?key", re.IGNORECASE)
# Tokens that let nobody in: those that a model reads, and counts of them.
_WORDS = re.compile(
    r"(?<![a-z])(max|min|num|n|total|per|eos|bos|pad|unk)[-_.]?tokens?(?![a-z])"
    r"|(?<![a-z])(new|special|batch|seq|prompt)[-_.]?tokens(?![a-z])"
    r"|tokens?[-_.]?(per|len|length|count|budget|limit|size)(?![a-z])"
    r"|token(i[sz]|ed)"
)


def is_name(text: str) -> bool:
    """Say whether a job may be called so."""
    return re.fullmatch(NAME, text) is not None


def is_sensitive(text: str) -> bool:
    """Say whether what has this name, or what this text says, may let somebody in."""
    if _SENSITIVE.search(text):
        return True
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    return "token" in _WORDS.sub("", words)
