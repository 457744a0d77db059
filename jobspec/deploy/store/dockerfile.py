"""What a Dockerfile says of files and images: as far as it can be told without building it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from jobctl.jobspec.deploy.store.ignore import Patterns
from jobctl.jobspec.records import dataclass

_VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_SYNTAX = re.compile(r"^#\s*syntax\s*=", re.IGNORECASE | re.MULTILINE)
_OF_BUILDKIT = ("--mount", "--network", "--security", "--link", "--chmod", "--exclude", "--parents", "--checksum")
_DIRECTIVE = re.compile(r"^#\s*escape\s*=", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name in capitals, its flags (`--from=base`), and the rest of its line."""

    name: str
    flags: tuple[str, ...]
    rest: str

    @property
    def words(self) -> list[str]:
        """The arguments, in either form."""
        if self.rest.startswith("["):
            try:
                found = json.loads(self.rest)
            except ValueError:
                found = None
            if isinstance(found, list):
                return [str(word) for word in found]
        return self.rest.split()


def text_of(dockerfile: bytes) -> str:
    """Return the text of a Dockerfile. As for Docker, a byte order mark is no part of its first line."""
    return dockerfile.decode("utf-8-sig", "replace")


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile; lines of a here-document look like instructions, too."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\[ \t]*\n", " ", "\n".join(line for line in lines if line.strip())).splitlines():
        name, rest = _first_word(line)
        flags: list[str] = []
        while rest.startswith("--"):
            flag, rest = _first_word(rest)
            flags.append(flag)
        yield Instruction(name.upper(), tuple(flags), rest)


def _first_word(text: str) -> tuple[str, str]:
    """Return the first word of a text, and what follows it; there may be any space between them."""
    first, *rest = text.split(None, 1) or ("",)
    return first, rest[0].strip() if rest else ""


def needs_buildkit(text: str) -> bool:
    """Say whether a Dockerfile has something that only BuildKit knows."""
    if "<<" in text or _SYNTAX.search(text):
        return True
    flags = (flag.partition("=")[0] for one in instructions(text) for flag in one.flags)
    return any(flag in _OF_BUILDKIT for flag in flags)


def copied(text: str) -> list[str] | None:
    """Return the patterns of files that a Dockerfile copies from its context, None if it may be any of them."""
    if "<<" in text or _DIRECTIVE.search(text):
        return None
    found: list[str] = []
    for one in instructions(text):
        from_elsewhere = any(flag.startswith("--from=") for flag in one.flags)
        if one.name == "ONBUILD" or any(_mounts_context(flag) for flag in one.flags):
            return None
        if one.name in ("COPY", "ADD") and not from_elsewhere:
            if not one.rest.startswith("[") and re.search(r"[\"'\\]", one.rest):
                return None  # quoted as in a shell
            found += [word for word in one.words[:-1] if "://" not in word]
    plain = [str(PurePosixPath(word.lstrip("/"))) for word in found]
    return None if any(word in (".", "") or "$" in word or ".." in word or "**" in word for word in plain) else plain


def _mounts_context(flag: str) -> bool:
    """Say whether a flag mounts files of the context: so do mounts of no type, unless they are from elsewhere."""
    if not flag.startswith("--mount="):
        return False
    options = dict(option.partition("=")[::2] for option in flag.removeprefix("--mount=").split(","))
    return options.get("type", "bind") == "bind" and "from" not in options


def goes_through(pattern: str, link: str) -> bool:
    """Say whether a pattern of files leads to, or through, a link: then what it leads to is copied."""
    parts, count = pattern.split("/"), link.count("/") + 1
    return count <= len(parts) and Patterns(["/".join(parts[:count])]).match(link)


def images(text: str, args: Iterable[tuple[str, str]]) -> Sequence[str]:
    """Return the names of images after FROM and in `--from=`, with arguments filled in. Stages are among them."""
    values: dict[str, str] = {}
    given = dict(args)
    found: list[str] = []
    for one in instructions(text):
        if one.name == "ARG":
            parts = (word.partition("=") for word in one.words)
            values.update({name: value.strip("\"'") for name, _, value in parts} | given)
        found += [_filled(flag.removeprefix("--from="), values) for flag in one.flags if flag.startswith("--from=")]
        found += [_filled(word, values) for word in one.words[:1] if one.name == "FROM"]
    return found


def _filled(text: str, values: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[3], match[2] or ""), text)
