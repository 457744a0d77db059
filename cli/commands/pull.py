"""`jobctl pull`: fetch logs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from jobctl.console import command
from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, SshConfig


@command
def pull(
    job: Job = None,
    hosts: Hosts = None,
    directory: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(metavar="DIR", help="Where to; default ./JOB-pull.", show_default=False),
    ] = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Fetch logs and outputs.

    Example: jobctl pull my-job results/
    """
    from jobctl.inside import pull_job
    from jobctl.jobs import Reached
    from jobctl.running import running_job

    pull_job(running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace)), directory, output)
