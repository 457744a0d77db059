"""What jobs have left on this machine, copied for `pull`: they may write it, and remove it, meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from jobctl.jobspec.plan.types import Plan

# What is not there, or no longer, or leads nowhere as a link.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def fetch_logs(roots: Sequence[Path], into: Path) -> int:
    """Copy the logs of all nodes below `roots`, of which later ones may have the same; return how many files there are."""
    found = [path for root in roots for path in sorted(root.glob("node-*/logs"))]
    return len(set[Path]().union(*(_copy(path, into / path.parent.name / "logs") for path in found)))


def fetch_outputs(plan: Plan, into: Path) -> int:
    """Copy the outputs that are in the working directory; return how many of them there are."""
    if not plan.nodes[0].launch.workdir:
        return 0
    workdir, above = Path(plan.nodes[0].launch.workdir), frozenset({os.path.realpath(into)})
    found = [output for output in plan.outputs if (workdir / output).exists()]
    for output in found:
        _copy(workdir / output, into / "outputs" / output, above)
    return len(found)


def fetch_collected(roots: Sequence[Path], into: Path) -> int:
    """Copy the outputs that `down` has fetched from hosts below `roots`; return how many there are."""
    found = {path.relative_to(root): path for root in roots for path in sorted(root.glob("outputs/*/*"))}
    for name, path in found.items():
        _copy(path, into / name)
    return len(found)


def _copy(source: Path, to: Path, above: frozenset[str] = frozenset()) -> set[Path]:
    """Copy a file, or all files of a folder; return where these are now. Links are followed.

    Left out is what goes away meanwhile, what leads nowhere or back to a folder that it is in (one of those `above`), and
    what is neither a file nor a folder, such as a socket.
    """
    try:
        mode = source.stat().st_mode
        if S_ISDIR(mode):
            inside = above | {os.path.realpath(source)}
            names = [] if inside == above else sorted(os.listdir(source))
            return set[Path]().union(*(_copy(source / name, to / name, inside) for name in names))
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return set()
    if not S_ISREG(mode):
        return set()
    to.parent.mkdir(parents=True, exist_ok=True)
    to.unlink(missing_ok=True)  # it may be one that nobody may write
    with contextlib.suppress(FileNotFoundError):
        _copy_file(source, to)
        return {to}
    return set()


def _copy_file(source: Path, to: Path) -> None:
    """Copy a file; half of it does not stay. Of a full disk, `copy2` names the file that it reads."""
    try:
        shutil.copy2(source, to)
    except OSError as error:
        to.unlink(missing_ok=True)
        if error.errno in _FULL:
            raise OSError(error.errno, error.strerror, str(to)) from error
        raise
