"""`jobctl ssh`: a shell inside of a node."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from jobctl.options import AcceptNew, ClusterContext, Hosts, Job, Namespace, Node, SshConfig
from jobctl.views.failure import Failed, command


@command
def ssh(
    ctx: typer.Context,
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
    from jobctl.jobspec.operations.errors import UnknownJob
    from jobctl.jobspec.operations.inspect.ssh import serve_node, shell_in_node
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.views.reporter import Terminal

    typed = [*ctx.args, *(ctx.obj or ())]
    if typed:
        raise Failed("`ssh` opens a shell, and takes no command", 2, _runs(typed))
    try:
        found = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    except UnknownJob as problem:  # people type a command where the job may stand
        hint = f"{problem.hint}; `ssh` takes no command: {_runs([job or ''])}"
        raise UnknownJob(problem.message, hint) from problem
    if not stdio:
        raise typer.Exit(shell_in_node(found.handle, node, Terminal()))
    serve_node(found.enterable(), node, Terminal())


def _runs(typed: Sequence[str]) -> str:
    return f"`jobctl exec --node N -- {shlex.join(typed)}` runs one"
