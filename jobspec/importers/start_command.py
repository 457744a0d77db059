"""A command that starts processes, as the importers hand it on."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TypeAlias

from jobctl.jobspec.importers.draft import HostLine
from jobctl.jobspec.importers.escaping import for_people, is_constant
from jobctl.jobspec.importers.launchers.docker import DockerRun
from jobctl.jobspec.importers.names import is_secret, looks_secret
from jobctl.jobspec.importers.notes import not_carried_over
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class StartCommand:
    """A command without what stood around it, and what that said. A variable without a value is the environment's."""

    argv: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    line: int | None = None
    source: str = ""
    text: str = ""  # as it was written, without where its output goes; empty where it reads a file
    maybe: str = ""
    folder: str = "."
    hosts: tuple[HostLine, ...] = ()
    remote: bool = False
    container: DockerRun | None = None
    executed_in: str | None = None  # the container of `docker exec`
    env_files: tuple[str, ...] = ()  # of `docker exec`; they count before the variables of its container
    processes: int | None = None  # as mpirun says it
    per_node: int | None = None
    logged: bool = False
    patterns: tuple[str, ...] = ()  # words of which its shell makes others
    stdin: str | None = None  # what it reads, if that is known
    notes: tuple[str, ...] = ()
    # Those that the script made before, by their files and names.
    images: Mapping[str, str] = field(default_factory=dict)

    @property
    def head(self) -> str:
        """The command's name, without its folder."""
        return posixpath.basename(self.argv[0]) if self.argv else ""

    @property
    def where(self) -> str:
        """Its line, as the beginning of a note."""
        return f"line {self.line}: " if self.line else ""

    @property
    def told(self) -> str:
        """The command as a note shows it: short, and without what may be secret."""
        source = self.source or for_people(" ".join(self.argv))
        secrets = (value for name, value in self.env.items() if value and is_secret(name, value))
        if looks_secret(source) or any(secret in source for secret in secrets):
            return f"{self.head} …"
        return source if len(source) <= 100 else f"{source[:99]}…"

    def noting(self, what: str, why: str) -> StartCommand:
        """Return the launch with one more note on what is not carried over."""
        return replace(self, notes=(*self.notes, not_carried_over(what, why)))


Inside: TypeAlias = tuple[StartCommand, ...]


def in_folder(launch: StartCommand, folder: str | None) -> StartCommand:
    """Return the launch in the folder that a command around it changes to."""
    if folder is None:
        return launch
    if not is_constant(folder):
        return launch.noting(f"{launch.head} in {folder}", "the folder is not known here: `code` may have to name it")
    whole = folder if folder.startswith(("/", "~")) else posixpath.normpath(posixpath.join(launch.folder, folder))
    return replace(launch, folder=whole)
