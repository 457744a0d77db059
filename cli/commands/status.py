"""`jobctl status`: what runs where."""

from __future__ import annotations

from typing import Annotated

import typer

from jobctl import console
from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, SshConfig
from jobctl.views.failure import command


@command
def status(
    job: Job = None,
    hosts: Hosts = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it live until the job ends.")] = False,
    wide: Annotated[bool, typer.Option("--wide", help="One line per process.")] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Say what runs where.

    Read from the processes themselves, each time.

    Example: jobctl status my-job --watch
    """
    from jobctl.jobspec.operations.inspect.as_json import status_json
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.running import running_handle
    from jobctl.views.outcome import raise_unseen
    from jobctl.views.status import show_status, watch_status

    handle = running_handle(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    if watch:
        watch_status(handle, wide, output)
    elif output is Format.json:
        console.out_json(status_json(handle))
    else:
        show_status(handle, wide)
    handle.events().gather()
    raise_unseen(handle)
