"""Comments below an imported spec. Neither shows a value that looks secret: people share a spec, and keep it in Git."""

from __future__ import annotations

import re

from jobctl.jobspec.importers.escaping import for_people
from jobctl.jobspec.importers.names import is_secret, looks_secret

# `NAME=VALUE`, `--option=VALUE` or `--option VALUE`, up to the value.
_GIVEN = re.compile(r"([\w.-]+)=|(?<!\S)(--?[\w-]+) (?=\S)")
_LOGIN = re.compile(r"://([^/\s]*:[^/\s]*|[\w-]{20,})@")

# Why options of several launchers are not carried over.
LOGS_KEPT = "logs are kept by jobctl: `jobctl logs`"
NOT_BOUND = "processes are not bound to cores"
NO_PLACE = "it has no place in the spec"


def not_carried_over(what: str, why: str) -> str:
    """Return the note that `what`, a word, is not carried over, and why."""
    return f"not carried over: {concealed(for_people(what))} ({_LOGIN.sub('://…@', why)})"


def to_check(text: str) -> str:
    """Return the note on what a person has to look at."""
    words = re.sub(r"[^\s`]+", lambda word: concealed(word[0]), for_people(text))
    return f"check: {words}"


def concealed(text: str) -> str:
    """Return what was written, up to the first value that looks secret."""
    text = _LOGIN.sub("://…@", text)
    for given in _GIVEN.finditer(text):
        name, value = given[1] or given[2], _GIVEN.split(text[given.end() :])[0]
        if value and (is_secret(re.sub(r"[.-]", "_", name), value) or looks_secret(f"{name}={value}")):
            return f"{text[: given.end()]}…"
    return text
