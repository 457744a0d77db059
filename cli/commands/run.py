"""`jobctl run`: a command with what the job would have."""

from __future__ import annotations

import typer

from jobctl.options import (
    AcceptNew,
    Exclude,
    Hosts,
    Job,
    Node,
    On,
    Set,
    SshConfig,
    TargetOption,
    command_after_dashes,
    joined,
    target_name,
)
from jobctl.views.failure import command


@command
def run(
    ctx: typer.Context,
    job: Job = None,
    hosts: Hosts = None,
    on: On = None,
    exclude: Exclude = None,
    target: TargetOption = None,
    node: Node = None,
    overrides: Set = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
) -> None:
    """Run a command as the job would.

    With its image, mounts, env, secrets and code, but without the job: for a look around.

    Example: jobctl run job.yaml -- python3 -c 'import torch; print(torch.__version__)'
    """
    from jobctl.jobspec.operations.inspect.oneoff import run_like_node
    from jobctl.jobspec.operations.resolve.job import Reached, Where, as_started, compile_job
    from jobctl.jobspec.operations.targets.base import RunRequest
    from jobctl.views.reporter import Terminal

    argv = command_after_dashes(ctx, "run")
    where = as_started(job, Where(target_name(target), hosts, joined(on), joined(exclude)))
    reporter = Terminal()
    compiled = compile_job(job, overrides, where, reporter)
    reached = Reached(ssh_config=ssh_config, accept_new=accept_new)
    request = RunRequest(compiled, node, argv, reached)
    raise typer.Exit(run_like_node(request, reporter))
