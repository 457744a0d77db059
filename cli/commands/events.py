"""`jobctl events`: what happened and why."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, Since, SshConfig, moment
from jobctl.views.failure import command


@command
def events(
    job: Job = None,
    hosts: Hosts = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    tail: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--tail", metavar="N", min=0, help="The last N events.", show_default=False),
    ] = None,
    since: Since = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Tell what happened and why.

    Example: jobctl events my-job --since 1h -f
    """
    from jobctl.jobspec.operations.errors import Refused
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.running import running_handle
    from jobctl.views.events import EventChoice, show_events

    choice = EventChoice(moment(since), tail)
    try:
        handle = running_handle(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    except Refused as error:
        if namespace and namespace.isdecimal():  # as `tail -n` and `logs -n` have it
            error.hint = f"`-n` is `--namespace` here; `--tail {namespace}` shows the last {namespace} events"
        raise
    show_events(handle, choice, output, follow=follow)
