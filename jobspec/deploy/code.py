"""The identity of the code that a job runs, so that a changed script restarts what runs an old one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

from jobctl.jobspec.plan.types import Plan

# What running a script changes by itself, and what never reaches a process.
_NEVER = (".git", "__pycache__", "*.pyc", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache")


def code_hash(plan: Plan) -> str | None:
    """Return a hash of the code that `plan` sends (or, without `code`, of the script beside the spec).

    Names, modes and contents count; times do not. None where there is nothing on this machine to watch.
    """
    if plan.code is not None:
        root = Path(plan.code.source)
        return _hash(root, _files(root, (*_NEVER, *plan.code.exclude, *plan.outputs), _own_output(plan, root)))
    if plan.script is not None and os.path.isfile(plan.script):
        script = Path(plan.script)
        return _hash(script.parent, iter([script]))
    return None


def _own_output(plan: Plan, root: Path) -> frozenset[str]:
    """Return the directories below the code that the job itself writes into."""
    where = plan.checkpoint.dir if plan.checkpoint else None
    return frozenset({where} if where and Path(where).is_relative_to(root) else ())


def _files(root: Path, exclude: tuple[str, ...], skip: frozenset[str]) -> Iterator[Path]:
    patterns = tuple(pattern.strip("/") for pattern in exclude)
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(
            name for name in folders if not _excluded(here / name, root, patterns) and str(here / name) not in skip
        )
        yield from (here / name for name in sorted(names) if not _excluded(here / name, root, patterns))


def _excluded(path: Path, root: Path, patterns: tuple[str, ...]) -> bool:
    relative = path.relative_to(root).as_posix()
    return any(fnmatch(path.name, pattern) or fnmatch(relative, pattern) for pattern in patterns)


def _hash(root: Path, files: Iterator[Path]) -> str:
    digest = sha256()
    for path in files:
        try:
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        except OSError:
            continue  # a file that goes away, or that nobody may read, is not code that a process runs
        name = path.relative_to(root).as_posix().encode(errors="surrogateescape")
        digest.update(b"%d %s\0%d\0" % (len(name), name, len(content)))
        digest.update(content)
    return digest.hexdigest()[:16]
