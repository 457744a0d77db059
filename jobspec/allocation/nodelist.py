"""The machines of an allocation, as Slurm writes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Iterator, List

_RANGES = re.compile(r"\[([0-9,-]+)\]")


def expand(text: str) -> List[str]:
    """Return the names that `s[1-3,07],gpu5` stands for. Not by scontrol: some clusters have none on their nodes."""
    return [name for part in _parts(text) for name in _names(part)]


def _parts(text: str) -> Iterator[str]:
    """Yield the parts between commas; a comma in brackets does not count."""
    depth, part = 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield part
            part = ""
        else:
            part += character
    if part:
        yield part


def _names(part: str) -> Iterator[str]:
    found = _RANGES.search(part)
    if found is None:
        yield part
        return
    for one in found.group(1).split(","):
        first, _, last = one.partition("-")
        for number in range(int(first), int(last or first) + 1):
            name = "%0*d" % (len(first), number)
            for rest in _names(part[found.end() :]):
                yield part[: found.start()] + name + rest
