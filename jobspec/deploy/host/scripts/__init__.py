"""What is run on hosts: small scripts for any POSIX shell with coreutils, tar and util-linux, and for Python in containers.

Values reach them as arguments, never as text of the script. `. ./find.sh` in a script stands for the lines of find.sh.
"""

from __future__ import annotations

from importlib.resources import files

from jobctl.jobspec.deploy.transport.scripts import Scripts

SCRIPTS = Scripts(__name__)


def python(name: str) -> str:
    """Return a script for Python in a container of the job."""
    return (files(__name__) / f"{name}.py").read_text(encoding="utf-8")
