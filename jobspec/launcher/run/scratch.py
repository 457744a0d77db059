"""Folders in memory that live as long as a generation."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import Problem, start_failure

if TYPE_CHECKING:
    from jobctl.jobspec.launcher.order.order import Order
SCRATCH = "jobctl-"  # how the names of such folders begin
MEMORY = "/dev/shm"  # where files lie in memory; in a container it goes with the container


def make_scratch(directory: str) -> str:
    """Make a new folder in memory that only this user can read, in place of the last one of this node.

    `directory` has a link to it, so that the next launcher can remove it after this one was killed.
    """
    import tempfile

    remove_scratch(directory)
    where = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
    path, link = tempfile.mkdtemp(prefix=SCRATCH, dir=where), os.path.join(directory, "scratch")
    with contextlib.suppress(OSError):
        os.symlink(path, link)
    return path


def make_shared(order: Order, directory: str) -> str:
    """Return a folder for a generation that all nodes see, made if it is not there; those of earlier ones go.

    It is below the checkpoint directory; without one, beside the folder of this node, `directory`: then all nodes are on
    one machine (`planner.checks`). Raises Problem, OSError.
    """
    mine = shared_prefix(order, directory) + order.id
    remove_shared(order, directory, but=mine)
    try:
        os.makedirs(mine, exist_ok=True)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:  # others may pass: a disk has room again
        raise Problem("cannot make %s: %s" % (mine, os.strerror(error.errno or 0)), start_failure(None)) from error
    return mine


def shared_prefix(order: Order, directory: str) -> str:
    """Return how the paths of such folders begin."""
    # The dot: names of jobs hold none, so this one's folders are not taken for those of another.
    base = order.checkpoint_dir or os.path.dirname(os.path.abspath(directory))
    return os.path.join(base, ".jobctl-%s." % order.job)


def remove_shared(order: Order, directory: str, but: str = "") -> None:
    """Remove such folders of all generations but one."""
    import glob

    for path in glob.glob(glob.escape(shared_prefix(order, directory)) + "*"):
        if path != but:
            remove_tree(path)


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, as far as that goes."""
    if os.path.isdir(path):
        import shutil

        shutil.rmtree(path, ignore_errors=True)


def remove_scratch(directory: str) -> None:
    """Remove the folder that `make_scratch` has made, if there is one."""
    link = os.path.join(directory, "scratch")
    with contextlib.suppress(OSError):
        path = os.readlink(link)
        if os.path.basename(path).startswith(SCRATCH):
            remove_tree(path)
        os.unlink(link)
