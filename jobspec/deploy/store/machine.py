"""Which machine the processes of a job are on, where several share the folder that the job's files are in."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path

from jobctl.jobspec.deploy.store.files import read_json, write_json

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def record_machine(file: Path) -> None:
    """Write down that the job's processes are on this machine."""
    write_json(file, this_machine(), 0o600)


def other_machine(file: Path) -> str | None:
    """Return the name of the machine that the job's processes are on, None where that is this one, or is not known.

    One that was booted again has its name still, and a container that was made again runs on the same kernel as before.
    """
    known, here = read_json(file) or {}, this_machine()
    name = known.get("name")
    is_other = all(known.get(key) and here[key] and known[key] != here[key] for key in here)
    return str(name) if is_other else None


def this_machine() -> dict[str, str]:
    """Return the name of this machine, and the id of its boot (empty where the kernel does not tell)."""
    try:
        boot = _boot_id()
    except OSError:
        boot = ""
    return {"name": socket.gethostname(), "boot": boot}


@cache
def _boot_id() -> str:
    """Return the id of this boot, which no process outlives: each look at a job asks for it. Raises OSError."""
    return _BOOT.read_text(encoding="ascii").strip()
