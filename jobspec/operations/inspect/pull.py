"""What a job leaves behind, copied to this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle


def pull_job(handle: Handle, into: Path) -> Mapping[str, int]:
    """Copy logs and outputs of the job into a directory; return how many of what that was."""
    from jobctl.jobspec.deploy.store.code import names_in, note_pulled

    before = names_in(into)
    copied = handle.fetch(into)
    if not copied:
        raise Refused(f"job `{handle.job.name}` has left nothing to fetch")
    note_pulled(into, before)
    return copied
