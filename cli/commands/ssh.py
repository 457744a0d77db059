"""`jobctl ssh`: a shell inside of a node."""

from __future__ import annotations

from typing import Annotated

import typer

from jobctl.options import AcceptNew, ClusterContext, Hosts, Job, Namespace, Node, SshConfig
from jobctl.views.failure import command


@command
def ssh(
    job: Job = None,
    hosts: Hosts = None,
    node: Node = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Speak SSH on stdin and stdout, for the clients of `jobctl ssh-config`.")
    ] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
) -> None:
    """Open a shell inside of a running node.

    In its container, as `exec` does. `jobctl ssh-config` lets editors in.

    Example: jobctl ssh my-job --node 1
    """
    from jobctl.jobspec.operations.inspect.ssh import serve_node, shell_in_node
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.views.reporter import Terminal

    found = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    if not stdio:
        raise typer.Exit(shell_in_node(found.handle, node, Terminal()))
    serve_node(found.enterable(), node, Terminal())
