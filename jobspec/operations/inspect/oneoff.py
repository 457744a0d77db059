"""A command with what the job's processes would have, but without the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.operations.resolve.job import refuse_missing_files
from jobctl.jobspec.operations.targets.table import finder_of

if TYPE_CHECKING:
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.targets.base import RunRequest


def run_like_node(request: RunRequest, reporter: Reporter) -> int:
    """Run a command with what a node's processes would have, and return its exit code.

    Raises Refused if the code or a file of `env_file` is missing.
    """
    refuse_missing_files(request.compiled)
    return finder_of(request.compiled.target).run(request, reporter)
