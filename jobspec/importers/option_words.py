"""The options that the words of a command begin with."""

from __future__ import annotations

from collections.abc import Sequence, Set


def leading(words: Sequence[str], takes: Set[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options at the beginning, each with its value, and the words after them: `-p 22`, `-p22`, `--port=22`.

    `takes` are those with a word for a value.
    """
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in takes:
            if not equals and at < len(words):
                value = words[at]
                at += 1
        elif not word.startswith("--") and word[:2] in takes:
            name, value = word[:2], word[2:]
        found.append((name, value))
    return found, list(words[at:])
