"""Images that a batch script makes itself: the file or the name that it starts later, and from where it is."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from jobctl.jobspec.importers.option_words import leading
from jobctl.jobspec.importers.shell.script import Command
from jobctl.jobspec.importers.slurm.option_syntax import split

_FROM = re.compile(r"(docker|dockerd|podman)://")
_VALUES = {"--arch", "--dir", "--library", "--name", "--tmpdir"}  # of `apptainer pull` and `build`


def made_images(commands: Iterable[Command]) -> tuple[Mapping[str, str], tuple[Command, ...]]:
    """Return the images that commands make, each by its file or its name there, and all other commands."""
    made: dict[str, str] = {}
    rest = []
    for command in commands:
        found = tuple(_made(command.argv))
        for name, source in found:
            made[name] = made.get(source, source)
        if not found or not all(_FROM.match(made[name]) or made[name].startswith("/") for name, _ in found):
            rest.append(command)
    return made, tuple(rest)


def _made(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what a command makes, and of what."""
    words = list(argv)
    if words and posixpath.basename(words[0]) == "srun":
        words = split(words[1:])[1]
    program = posixpath.basename(words[0]) if words else ""
    if program in ("apptainer", "singularity"):
        yield from _of_apptainer(words[1:])
    elif program == "enroot":
        yield from _of_enroot(words[1:])


def _of_apptainer(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`pull [FILE] URI`, `build FILE URI`."""
    while words and words[0].startswith("-"):
        words = words[1:]
    if words[:1] not in (["pull"], ["build"]):
        return
    given, rest = leading(words[1:], _VALUES)
    if not rest or not _FROM.match(rest[-1]):
        return
    options = dict(given)
    tail = posixpath.basename(rest[-1].partition("://")[2])
    file = rest[0] if len(rest) == 2 else options.get("--name") or f"{tail.replace(':', '_')}.sif"
    if ":" not in tail and len(rest) == 1 and "--name" not in options:
        file = f"{tail}_latest.sif"
    yield from _places(posixpath.join(options.get("--dir", ""), file), rest[-1])


def _of_enroot(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`import [-o FILE] URI`, `create [-n NAME] FILE`."""
    if words[:1] == ["import"]:
        given, rest = leading(words[1:], {"-o", "--output", "-a", "--arch"})
        if rest and _FROM.match(rest[0]):
            options = dict(given)
            path = re.sub(r"^[^@/]+@|[^#/]+#", "", rest[0].partition("://")[2])
            file = options.get("-o") or options.get("--output") or re.sub("[/:]", "+", path) + ".sqsh"
            yield from _places(file, rest[0])
    elif words[:1] == ["create"]:
        given, rest = leading(words[1:], {"-n", "--name"})
        if rest:
            options = dict(given)
            name = options.get("-n") or options.get("--name") or posixpath.basename(rest[0]).removesuffix(".sqsh")
            yield name, rest[0]


def _places(file: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the ways in which a script may name a file."""
    yield file, source
    if not file.startswith("/"):
        yield f"./{file}", source
        yield f"$$PWD/{file}", source
