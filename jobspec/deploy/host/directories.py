"""Where the files of a job are on a host, and which machine has it, if that is `localhost` for several with one home.

Each of these machines has an engine of its own, and the job's lock on storage of its own: nobody sees from here what runs
on another one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import HostError, OnAnotherMachine
from jobctl.jobspec.deploy.store.machine import other_machine, this_machine
from jobctl.jobspec.deploy.transport.base import FIRST_ANSWER, Transport, checked, put
from jobctl.jobspec.deploy.transport.ssh_problems import ssh_login
from jobctl.jobspec.spec.hosts import Host

# The work directory, and where what must be the host's own is: the same, unless the work directory may be shared.
Directories: TypeAlias = tuple[PurePosixPath, PurePosixPath]


def find_directories(host: Host, transport: Transport, place: Sequence[str]) -> Directories:
    """Ask a host for the directories of a job; `place` is what find.sh has to know. Raises HostError."""
    lines = checked(transport, SCRIPTS.argv("place", *place), "find the work directory", timeout=FIRST_ANSWER)
    found = [PurePosixPath(os.fsdecode(line)) for line in lines.splitlines()[-2:]]
    if len(found) < 2 or not all(path.is_absolute() for path in found):
        said = lines.decode("utf-8", "replace").strip() or "nothing"
        message = f"cannot find the work directory: its shell said {said}"
        raise HostError(host.name, "command-failed", message, f"try `ssh {ssh_login(host)} pwd`")
    return found[0], found[1]


def refuse_elsewhere(host: Host, directories: Directories) -> None:
    """Raise OnAnotherMachine if `localhost` was another machine for the command that brought the job up."""
    file = _machine_file(host, directories)
    name = other_machine(file) if file is not None else None
    if name is not None:
        raise OnAnotherMachine(host.name, name, str(file), "containers", "work directory")


def claim(host: Host, transport: Transport, directories: Directories) -> None:
    """Write down on which machine the job is, where that is `localhost` for others too."""
    file = _machine_file(host, directories)
    if file is not None:
        put(transport, str(file), json.dumps(this_machine()).encode(), 0o644)


def _machine_file(host: Host, directories: Directories) -> Path | None:
    """Return the file that says on which machine the job is, None where only one can have it."""
    work, own = directories
    return Path(work) / "machine.json" if host.local and work != own else None


def are_missing(transport: Transport, *directories: PurePosixPath) -> bool:
    """Say whether there is surely none of these directories: on a disk that does not answer may be some."""
    said = transport.run(["env", "LC_ALL=C", "stat", "--", *map(str, directories)])
    missing = (b": No such file or directory", b": Not a directory")
    return not said.out and said.code != 0 and all(line.endswith(missing) for line in said.err.splitlines())
