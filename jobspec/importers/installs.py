"""What a script installs before it trains, as commands of `setup`.

These run by themselves, in a container of the job's: without the script's own variables, without the tools of the machine
that it was written for (`sudo`, `srun`, `docker exec`), and in `sh`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Set

from jobctl.jobspec.importers.escaping import for_people, literal
from jobctl.jobspec.importers.launchers.python import python
from jobctl.jobspec.importers.names import MACHINE, is_secret, looks_secret
from jobctl.jobspec.importers.notes import concealed
from jobctl.jobspec.importers.start_command import StartCommand

_PROGRAMS = {"pip", "pip3", "conda", "mamba", "apt-get", "apt", "yum", "dnf", "apk", "uv"}
_ASSIGNED = re.compile(r"""(?:[A-Za-z_]\w*=(?:'[^']*'|"[^"]*"|[^\s'"])*\s+)*""")
_NAME = re.compile(r"\$\{?[#!]?(\w+|[@*])")
_FILE = re.compile(r"\.{1,2}(/.*)?|-[re]|--requirement|--editable|[^:]*\.(txt|whl|toml|ya?ml|cfg|gz|zip)")


def installs(launch: StartCommand) -> bool:
    """Say whether a command installs something."""
    told = python(launch.argv)
    if told is not None:
        return told.kind == "module" and told.what == "pip" and told.args[:1] == ("install",)
    return launch.head in _PROGRAMS and "install" in launch.argv


def setup_command(launch: StartCommand, given: Set[str]) -> str | None:
    """Return the word of `setup` that installs the same, None where only the script itself can.

    `given` are the variables that the job's processes have. A command stays as it is written where that means the same.
    """
    if launch.maybe or _shows_secret(launch):
        return None
    before = _ASSIGNED.match(launch.text)
    assigned = before[0] if before else ""
    names = set(_NAME.findall(launch.text)) - given
    alone = launch.text[len(assigned) :].split(maxsplit=1)[:1] == [for_people(launch.argv[0])]
    if any(map(is_secret, names)) or not launch.text:
        return None
    if alone and names <= MACHINE:
        return literal(launch.text)
    if names & MACHINE or launch.patterns or "$" in assigned or any("$$" in word for word in launch.argv):
        return None
    return (assigned if alone else "") + " ".join(map(shlex.quote, launch.argv))


def _shows_secret(launch: StartCommand) -> bool:
    texts = (launch.source, " ".join(launch.argv))
    return any(looks_secret(text) or concealed(text) != text for text in texts)


def reads_files(launch: StartCommand) -> bool:
    """Say whether what is installed is in files of the folder that the command runs in."""
    return any(map(_FILE.fullmatch, launch.argv[1:]))
