"""What is run on hosts: small scripts for any POSIX shell with coreutils, tar and util-linux, and for Python in containers.

Values reach them as arguments, never as text of the script. `. ./find.sh` in a script stands for the lines of find.sh.
"""

from __future__ import annotations

import ast
import base64
import re
import zlib
from functools import cache
from importlib.resources import files

from jobctl.jobspec.deploy.transport.scripts import Scripts

SCRIPTS = Scripts(__name__)
MARK = "jobctl hands this on"  # in the command line of the program that does so
HAND_ON = ("kept", "frames", "saved_image", "hand_on")  # what is joined to the program of hosts that hand an image on


_IMPORT = re.compile(r"^from (?:__future__|jobctl[\w.]*) import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE)
_INDENT = re.compile(r"^ +", re.MULTILINE)


def python(name: str) -> str:
    """Return a script for Python in a container of the job."""
    return (files(__name__) / f"{name}.py").read_text(encoding="utf-8")


def joined(*names: str) -> str:
    """Return scripts for Python as one, of which each may import from those before it."""
    texts = [_IMPORT.sub("", python(name)) for name in names]
    return "\n".join(["from __future__ import annotations", *texts])


@cache
def packed(text: str) -> bytes:
    """Return a program as a host gets it: a fifth of its bytes."""
    return zlib.compress(_lean(text).encode(), 9)


def taking(program: bytes) -> str:
    """Return a program for `python3 -c` that runs the packed one with which its input begins.

    The first line says whose it is, for those who look at what runs on a host.
    """
    return f"# {MARK}\nimport sys, zlib\nexec(zlib.decompress(sys.stdin.buffer.read({len(program)})))"


def holding(program: bytes) -> str:
    """Return the same with the packed program in it, for where something else reads the input first."""
    text = base64.b85encode(program).decode()
    return f"# {MARK}\nimport base64, zlib\nexec(zlib.decompress(base64.b85decode('{text}')))"


def _lean(text: str) -> str:
    """Return a program without what only people and type checkers read: comments, docstrings, annotations of functions."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return _INDENT.sub(lambda found: found[0][::4], ast.unparse(tree))


def _is_text(statement: ast.stmt) -> bool:
    """Say whether a statement is a text, of which nothing comes."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
