"""`jobctl top`: what nodes do right now."""

from __future__ import annotations

from typing import Annotated

import typer

from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, SshConfig
from jobctl.views.failure import command


@command
def top(
    job: Job = None,
    hosts: Hosts = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once, a second from now.")] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Show live what nodes do: steps a second, CPU, memory, devices.

    Until the job ends, or Ctrl-C.

    Example: jobctl top my-job
    """
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.running import running_handle
    from jobctl.views.outcome import raise_unseen
    from jobctl.views.top import show_top

    handle = running_handle(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    show_top(handle, output, once=once)
    raise_unseen(handle)
