"""What is run on hosts: small scripts for any POSIX shell with coreutils, tar and util-linux, and for Python in containers.

Values reach them as arguments, never as text of the script. `. ./find.sh` in a script stands for the lines of find.sh.
"""

from __future__ import annotations

import base64
import re
import zlib
from importlib.resources import files

from jobctl.jobspec.deploy.transport.scripts import Scripts

SCRIPTS = Scripts(__name__)
MARK = "jobctl hands this on"  # in the command line of the program that does so
HAND_ON = ("kept", "frames", "saved_image", "hand_on")  # what is joined to the program of hosts that hand an image on


_IMPORT = re.compile(r"^from (?:__future__|jobctl[\w.]*) import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE)


def python(name: str) -> str:
    """Return a script for Python in a container of the job."""
    return (files(__name__) / f"{name}.py").read_text(encoding="utf-8")


def joined(*names: str) -> str:
    """Return scripts for Python as one, of which each may import from those before it."""
    texts = [_IMPORT.sub("", python(name)) for name in names]
    return "\n".join(["from __future__ import annotations", *texts])


def packed(text: str) -> str:
    """Return a program for `python3 -c` that does the same as `text`, in a third of its bytes.

    Its first line says whose it is, for those who look at what runs on a host.
    """
    code = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    return f"# {MARK}\nimport base64, zlib\nexec(zlib.decompress(base64.b85decode('{code}')))"
