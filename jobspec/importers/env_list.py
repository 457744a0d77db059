"""Lists of variables: `NAME = value` lines, as documents print them and env files hold them."""

from __future__ import annotations

import re

from jobctl.jobspec.importers.escaping import literal

_LINE = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*
        (?:'(?P<single>[^']*)'|"(?P<double>[^"$`\\]*)"|(?P<plain>[^'"$`\\;&|<>()]*?))\s*(?:(?<!\S)\#.*)?""",
    re.VERBOSE,
)


def read_list(text: str) -> dict[str, str] | None:
    """Return the variables in `text` as words, None if it holds anything else: then it is a script."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or _is_command(match):
            return None
        value = next(item for item in (match["single"], match["double"], match["plain"]) if item is not None)
        found[match["name"]] = literal(value)
    return found


def names_in(text: str) -> list[str]:
    """Return the variables that an env file sets."""
    parts = (line.lstrip().partition("=") for line in text.splitlines())
    return [name for name, equals, _ in parts if equals and not name.startswith("#")]


def read_otherwise(text: str) -> list[str]:
    """Return the variables of an env file to which Docker gives another value than Compose: it takes lines as they are."""
    found = []
    for line in text.splitlines():
        name, equals, value = line.lstrip().partition("=")
        if equals and not name.startswith("#") and (value != value.strip() or re.search(r"^['\"]|\$|\s#", value)):
            found.append(name)
    return found


def _is_command(match: re.Match[str]) -> bool:
    """`NAME=value command`: a value with blanks and no blanks around `=` is a command with a variable before it."""
    plain = match["plain"]
    return plain is not None and re.search(r"\s", plain.strip()) is not None and re.search(r"\s=", match[0]) is None
