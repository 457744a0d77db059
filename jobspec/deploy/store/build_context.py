"""What an image is built from: the files that the engine gets, and the version that they make together."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store.code import (
    IGNORE,
    NEVER,
    File,
    LeftOut,
    hash_of,
    ignored,
    selected,
    written_for,
)
from jobctl.jobspec.deploy.store.dockerfile import copied, goes_through, text_of
from jobctl.jobspec.deploy.store.ignore import Patterns, at_any_depth
from jobctl.jobspec.plan.sent import Build
from jobctl.jobspec.records import dataclass

DIGITS = 12  # of the hash, in the tag


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The files of a build, its Dockerfile, and the name that the engine finds that under.

    `sent` are the files that the engine gets, `files` those that make the image, `left_out` what it does not get. `added`
    are more that the engine reads and `COPY` does not: a Dockerfile that is not among the files, and the `.dockerignore`
    that keeps it from being copied.
    """

    files: tuple[File, ...]
    left_out: tuple[LeftOut, ...]
    dockerfile: bytes
    name: str
    sent: tuple[File, ...]
    added: tuple[tuple[str, bytes], ...] = ()

    def version(self, build: Build) -> str:
        """Return what identifies the image: names, kinds and contents of files, Dockerfile, arguments and target."""
        texts = [sha256(content).hexdigest() for content in (self.dockerfile, *(text for _, text in self.added))]
        said = [texts, build.args, build.target, hash_of(self.files)]
        return sha256(json.dumps(said).encode()).hexdigest()[:DIGITS]


def context_of(build: Build, job: str) -> BuildContext:
    """Return the files of a build. Raises DeployError if there is no such folder, or no Dockerfile.

    The files are those that Docker would send and the Dockerfile may copy, less what `code` leaves out too, unless a line
    `!NAME` of the .dockerignore names it: what changes when somebody looks at it, what jobctl wrote, and what tells a
    secret.
    """
    root, dockerfile = Path(build.context), Path(build.dockerfile)
    if not root.is_dir():
        raise DeployError(f"there is no directory {root} to build from", "see `build.context` in the spec")
    try:
        content = dockerfile.read_bytes()
    except OSError as error:
        hint = "`build.dockerfile` is relative to `build.context`"
        raise DeployError(f"cannot read the Dockerfile {dockerfile}: {error.strerror}", hint) from error
    lines = _ignored(root, dockerfile)
    taken_back = [line.removeprefix("!") for line in lines if line.startswith("!")]
    excluded = Patterns([*at_any_depth(NEVER), *written_for(job), *lines])
    found = selected(root, excluded, Patterns(taken_back), dict(build.withheld))
    left_out = found.left_out
    files, name = _used(found.files, content), os.path.relpath(dockerfile, root)
    itself = tuple(file for file in found.files if file.name == name)
    if itself:
        return BuildContext(files, left_out, content, name, tuple(dict.fromkeys((*files, *itself))))
    name = f".dockerfile.{sha256(content).hexdigest()[:DIGITS]}"
    ignores = any(file.name == IGNORE for file in files)
    hidden = [*lines, name, *([] if ignores else [IGNORE])]
    kept = tuple(file for file in files if file.name != IGNORE)
    added = ((name, content), (IGNORE, "".join(f"{line}\n" for line in hidden).encode()))
    return BuildContext(kept, left_out, content, name, kept, added)


def _used(files: tuple[File, ...], dockerfile: bytes) -> tuple[File, ...]:
    """Return the files that a Dockerfile may copy: a change of others makes no other image."""
    patterns = copied(text_of(dockerfile))
    if patterns is None or any(goes_through(one, file.name) for file in files if file.is_link for one in patterns):
        return files
    wanted = Patterns(patterns)
    return tuple(file for file in files if wanted.match(file.name))


def _ignored(root: Path, dockerfile: Path) -> list[str]:
    """Return the patterns of files that the engine does not get. A Dockerfile may have an ignore file of its own."""
    own = dockerfile.with_name(dockerfile.name + IGNORE)
    return ignored(own if own.is_file() else root / IGNORE)
