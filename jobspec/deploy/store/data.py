"""The files of data that a job sends: all that are below a folder, whatever they are called."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from stat import S_ISLNK, S_ISREG

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store.code import File, Listings
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file or link of data: its name below the folder, size in bytes (of a link 0), mode and time of its last change."""

    name: bytes
    size: int
    kind: int
    time_ns: int
    is_link: bool


_LISTINGS = Listings()


def files_of(data: Dataset) -> tuple[File, ...]:
    """Return the files and links of data, sorted by name. Raises DeployError if the folder cannot be read."""
    return tuple(sorted(_walk(Path(data.source), ""), key=lambda file: file.name.split("/")))


def described(files: Iterable[File]) -> tuple[DataFile, ...]:
    """Return what tells files of this machine from others."""
    return tuple(
        DataFile(os.fsencode(file.name), file.size, file.kind, file.info.st_mtime_ns, file.is_link) for file in files
    )


def version_of(data: Dataset) -> str | None:
    """Return what identifies the files of data, None where there is no such folder on this machine."""
    if not os.path.isdir(data.source):
        return None
    files = files_of(data)
    version = version_from(described(files))
    _LISTINGS.note(data.source, version, files)
    return version


def files_to_send(data: Dataset) -> tuple[File, ...]:
    """Return the files of the version that data names, as they were listed for it. Raises DeployError."""
    listed = _LISTINGS.files(data.source, data.version)
    return files_of(data) if listed is None else listed


def version_from(files: Iterable[DataFile]) -> str:
    """Return what identifies files.

    No file is read: that may take hours. Another time makes another version, whose files hosts recognise as those that
    they have.
    """
    digest = sha256()
    for file in sorted(files, key=lambda file: file.name.split(b"/")):
        about = f"{file.kind:o} {file.size} {file.time_ns}"
        digest.update(b"%d %s\0%s\0" % (len(file.name), file.name, about.encode()))
    return digest.hexdigest()[:16]


def _walk(root: Path, folder: str) -> Iterator[File]:
    try:
        with os.scandir(root / folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        hint = "see `data` in the spec: jobctl sends a folder of this machine"
        raise DeployError(f"cannot read {root / folder}: {error.strerror}", hint) from error
    for entry in entries:
        path = f"{folder}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, f"{path}/")
            continue
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it has just gone
        if S_ISLNK(info.st_mode) or S_ISREG(info.st_mode):
            yield File(root / path, path, info)
