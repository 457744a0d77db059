"""`jobctl exec`: a command inside of a running node."""

from __future__ import annotations

import typer

from jobctl.options import AcceptNew, ClusterContext, Hosts, Job, Namespace, Node, SshConfig, command_after_dashes
from jobctl.views.failure import command


@command
def exec_(
    ctx: typer.Context,
    job: Job = None,
    hosts: Hosts = None,
    node: Node = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
) -> None:
    """Run a command inside of a running node.

    With the environment of its first process, in its directory.

    Example: jobctl exec my-job --node 0 -- env
    """
    from jobctl.jobspec.operations.inspect.exec import exec_in_node
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.running import running_handle
    from jobctl.views.reporter import Terminal

    argv = command_after_dashes(ctx, "exec")
    handle = running_handle(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    raise typer.Exit(exec_in_node(handle, node, argv, Terminal()))
