"""Lists of a script: `HOSTS=(a b)`, `"${HOSTS[@]}"`, `$@`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jobctl.jobspec.importers.shell.lexer import Token, WordPart


class OpenList(list[str]):
    """A list with a word that stands for any number of items: `HOSTS=($LIST)` where nobody knows `LIST`."""


def length(item: str | list[str] | None) -> int | None:
    """Return how many items a list has, None where that is not known."""
    return len(item) if isinstance(item, list) and not isinstance(item, OpenList) else None


def joined(before: list[str], words: Iterable[tuple[Token, list[str]]]) -> list[str]:
    """Return a list of what `words` stand for, behind what was in it."""
    items, open_ = list(before), isinstance(before, OpenList)
    for token, some in words:
        items += some
        open_ = open_ or (any("$" in item for item in some) and any(map(_is_split, token.parts)))
    return OpenList(items) if open_ else items


def _is_split(part: WordPart) -> bool:
    """Say whether a shell makes any number of words of a part: where nobody knows its text, nobody knows how many."""
    return part.kind != "text" and (not part.quoted or stands_for_many(part))


def stands_for_many(part: WordPart) -> bool:
    """Say whether a part is any number of words: `$@`, `${LIST[@]}`, `${!LIST[@]}`; `"$*"` and `"${LIST[*]}"` are one."""
    lists = "@" if part.quoted else "@*"
    return part.kind == "variable" and re.fullmatch(rf"[{lists}](:\d+)?|!?\w+\[[{lists}]\]", part.text) is not None


def has_keys(item: str | list[str]) -> bool:
    """Say whether a list names the places of its items: `([a]=1 [b]=2)`, whose order nobody knows."""
    return isinstance(item, list) and re.match(r"\[[^\]]*\]=", item[0] if item else "") is not None


def at(item: list[str], number: int) -> str | None:
    """Return the item at a place, empty where there is none, None where that is not known."""
    if isinstance(item, OpenList) and (number < 0 or any("$" in before for before in item[: number + 1])):
        return None
    return item[number] if -len(item) <= number < len(item) else None if isinstance(item, OpenList) else ""
