"""This program as the interpreter has compiled it, for the processes that run it once more on this node.

Compiling it takes longer than all else that such a process does before it works.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.system.files import note

if TYPE_CHECKING:
    from typing import Any, Optional
CODE: Any = None  # this file as the interpreter has compiled it, where it is the program that runs


def keep_compiled(directory: str) -> str:
    """Write this program down for guards of processes, and return the path; that of its source where that cannot be."""
    path = os.path.join(directory, "launcher.pyc")
    return path if write_compiled(path, bytes(8)) else os.path.abspath(__file__)


def keep_compiled_module(module: str) -> None:
    """Write this program down where an interpreter that imports it as the file `module` looks for it.

    Otherwise each process that waits compiles it, in images whose interpreters write no bytecode. Another version of Python
    looks for another name. It is written again each time, as the file may have been replaced since.
    """
    import importlib.util

    if CODE is None or sys.pycache_prefix is not None:  # that folder is not the job's own
        return
    path = importlib.util.cache_from_source(module)
    try:
        source = os.stat(module)
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        note("cannot write %s: %s" % (path, error))
        return
    write_compiled(path, struct.pack("<LL", int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF))


def write_compiled(path: str, stamp: bytes) -> bool:
    """Write this program down, with the `stamp` that its source has; say whether that was possible."""
    import importlib.util
    import marshal

    if CODE is None:
        return False
    try:
        with open(path + ".new", "wb") as file:
            file.write(importlib.util.MAGIC_NUMBER + bytes(4) + stamp + marshal.dumps(CODE))
        os.replace(path + ".new", path)
    except OSError as error:
        note("cannot write %s: %s" % (path, error))
        return False
    return True


def program_for(python: str, search: Optional[str], compiled: str) -> str:
    """Return what `python`, found in the path `search`, runs: the source, or `compiled` where it is this interpreter."""
    import shutil

    found = shutil.which(python, path=search or os.defpath)
    own = found is not None and os.path.isabs(found) and os.path.realpath(found) == os.path.realpath(sys.executable)
    return compiled if own and os.path.exists(compiled) else os.path.abspath(__file__)
