"""`jobctl wait`: until the job ends."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from jobctl.console import command
from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, SshConfig


@command
def wait(
    job: Job = None,
    hosts: Hosts = None,
    timeout: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--timeout", metavar="T", help="Give up waiting after T (exit 124).", show_default=False),
    ] = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Wait until the job ends; exit with its result.

    0: succeeded, 1: failed or stopped, 124: --timeout is over.

    Example: jobctl wait my-job --timeout 2h
    """
    from jobctl.following import wait_for
    from jobctl.jobs import Reached
    from jobctl.running import running_job

    code = wait_for(running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace)), timeout, output)
    if code:
        raise typer.Exit(code)
