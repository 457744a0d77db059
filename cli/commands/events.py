"""`jobctl events`: what happened and why."""

from __future__ import annotations

from typing import Annotated

import typer

from jobctl.console import command
from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, SshConfig


@command
def events(
    job: Job = None,
    hosts: Hosts = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Tell what happened and why.

    Example: jobctl events my-job -f
    """
    from jobctl.following import show_events
    from jobctl.jobs import Reached
    from jobctl.running import running_job

    show_events(running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace)), follow, output)
