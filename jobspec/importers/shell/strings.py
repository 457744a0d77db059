"""What a shell makes of texts: `${HOST%%:*}`, `${LIST//,/ }`, `${NAME:0:3}`, `gpu{1..4}`."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from jobctl.jobspec.importers.escaping import literal

MOST_ROUNDS = 4096
MAX_TEXT_CHARS = 4096  # of the texts in which a pattern is looked for at each place

FORM = re.compile(r"(\w+)(\[[^\][@*]+\])?(%%?|##?|//?|:(?=\s?-?\d)|\^\^|,,)(.*)", re.DOTALL)


def changed(text: str, operator: str, word: str) -> str | None:
    """Return what `${NAME OPERATOR WORD}` is where `text` is the variable's; None where that is not known."""
    if operator in ("^^", ",,"):
        return None if word else text.upper() if operator == "^^" else text.lower()
    if operator == ":":
        return _part(text, word)
    if re.search(r"[$`\"'\\]", word) or len(text) > MAX_TEXT_CHARS:
        return None
    if operator[0] == "/":
        pattern, _, new = word.partition("/")
        return (
            text.replace(pattern, new, -1 if operator == "//" else 1) if re.fullmatch(r"[^*?\[#%]+", pattern) else None
        )
    places = range(len(text) + 1)
    if operator[0] == "%":
        kept = [place for place in places if fnmatchcase(text[place:], word)]
        return text if not kept else text[: kept[0] if operator == "%%" else kept[-1]]
    kept = [place for place in places if fnmatchcase(text[:place], word)]
    return text if not kept else text[kept[-1] if operator == "##" else kept[0] :]


def _part(text: str, word: str) -> str | None:
    match = re.fullmatch(r"\s?(-?\d{1,6})(?::(-?\d{1,6}))?", word)
    if match is None:
        return None
    first = max(0, int(match[1]) + (len(text) if match[1][0] == "-" else 0))
    if match[2] is None:
        return text[first:]
    return text[first : int(match[2])] if match[2][0] == "-" else text[first : first + int(match[2])]


_BRACES = re.compile(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}|\{([^{}\s]*,[^{}\s]*)\}")


def braces(text: str) -> list[str]:
    """Return the words of `{0..3}` and `{a,b}`."""
    match = _BRACES.search(text)
    if match is None:
        return [literal(text)]
    if match[3] is not None:
        items = match[3].split(",")
    else:
        first, last = int(match[1]), int(match[2])
        step = 1 if last >= first else -1
        if abs(last - first) > MOST_ROUNDS:
            return [literal(text)]
        items = [str(number) for number in range(first, last + step, step)]
    before, after = literal(text[: match.start()]), braces(text[match.end() :])
    return [f"{before}{item}{rest}" for item in items for rest in after]
