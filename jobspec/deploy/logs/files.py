"""Where the logs of a job lie: files below a work directory, here or on hosts, read in parts."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Protocol

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True, order=True)
class LogKey:
    """A file below a job's work directory on one host."""

    host: str
    path: PurePosixPath


@dataclass(frozen=True, slots=True)
class Size:
    """How long a file is (bytes), and when it was last written (seconds since the epoch)."""

    bytes: int
    time: float


@dataclass(frozen=True, slots=True)
class Want:
    """`count` bytes of a file from `offset` on."""

    key: LogKey
    offset: int
    count: int


class LogSource(Protocol):
    """Where logs are read."""

    interval: float  # seconds between two looks at logs that grow
    problems: dict[str, DeployError]  # why the last read of a host failed

    @property
    def listed(self) -> Collection[str]:
        """The hosts whose files `files` has returned the last time."""

    def files(self, *, live: bool = False) -> Mapping[LogKey, Size]:
        """Return all files below the nodes' `logs` and `processes`; those of a host that does not answer are missing.

        `live`: nobody waits for a host that is slow.
        """

    def read(self, wants: Sequence[Want]) -> Mapping[Want, bytes]:
        """Return what was wanted, as far as it can be read."""


class Folder:
    """The logs in a work directory on this machine (or in what `down` collected of one).

    Of several folders the last one that has a file counts: it is that of the same host, collected again.
    """

    interval = 0.1
    listed = ("",)

    def __init__(self, *roots: Path) -> None:
        self.roots = roots
        self.problems: dict[str, DeployError] = {}

    def files(self, *, live: bool = False) -> Mapping[LogKey, Size]:
        """Return all files below the nodes' `logs` and `processes`; a node may be removed meanwhile."""
        return {key: size for root in self.roots for key, size in self._files(root)}

    def _files(self, root: Path) -> Iterator[tuple[LogKey, Size]]:
        nodes: list[Path] = []
        with suppress(FileNotFoundError):
            nodes = sorted(root.glob("node-*"))
        folders = [node / part for part in ("logs", "processes") for node in nodes]
        # Unlike `glob`, `walk` does not mind that a folder is gone.
        paths = [sorted(os.path.join(at, name) for at, _, names in os.walk(top) for name in names) for top in folders]
        for path in chain.from_iterable(paths):
            inside = PurePosixPath(os.path.relpath(path, root))
            with suppress(OSError):
                kept = os.stat(path)
                if is_of_node(inside) and S_ISREG(kept.st_mode):
                    yield LogKey("", inside), Size(kept.st_size, kept.st_mtime)

    def read(self, wants: Sequence[Want]) -> Mapping[Want, bytes]:
        """Return what was wanted."""
        found = {}
        for want in wants:
            for root in reversed(self.roots):
                try:
                    with (root / want.key.path).open("rb") as file:
                        file.seek(want.offset)
                        found[want] = file.read(want.count)
                        break
                except FileNotFoundError:
                    continue
        return found


def is_of_node(path: PurePosixPath) -> bool:
    """Say whether a file lies where a node has its logs, or what is known of its processes."""
    parts = path.parts
    return len(parts) > 2 and parts[0].startswith("node-") and number_in(parts[0][5:]) is not None
