"""Commands about what a job prints and leaves behind, and about looking around: logs, exec, run, pull."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from jobctl.console import Commands, Failed, command
from jobctl.options import (
    AcceptNew,
    ClusterContext,
    Exclude,
    Format,
    Hosts,
    Job,
    LongNamespace,
    Namespace,
    Node,
    On,
    Output,
    Set,
    SshConfig,
    TargetOption,
)


@command
def logs(
    job: Job = None,
    hosts: Hosts = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    node: Node = None,
    rank: Annotated[
        Optional[int], typer.Option("--rank", metavar="R", help="One global rank.", show_default=False)  # noqa: UP045
    ] = None,
    generation: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--generation", metavar="G", help="One generation.", show_default=False),
    ] = None,
    tail: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--tail", "-n", metavar="N", min=0, help="The last N lines of each process.", show_default=False),
    ] = None,
    since: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--since",
            metavar="T",
            help="From a time on (RFC 3339), or so long ago (10m).",
            show_default=False,
        ),
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Show when each line was written.")] = False,
    launcher: Annotated[bool, typer.Option("--launcher", help="Also what torchrun and the like printed.")] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: LongNamespace = None,
    output: Output = Format.text,
) -> None:
    """Print what the processes print.

    Merged by time, prefixed by node and rank.

    Example: jobctl logs my-job -f --rank 0
    """
    from jobctl.jobs import Reached
    from jobctl.logs import Choice, show_service, since_time, stream
    from jobctl.naming import is_service, node_number
    from jobctl.running import running_job, supervised_job

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    deployer = running_job(job, reached)
    service = node if is_service(deployer.plan, node) else None
    # A node may be of an earlier generation.
    number = None if node is None or service else node_number(deployer.plan, node)
    moment = None if since is None else since_time(since)
    choice = Choice(follow, number, rank, generation, tail, moment, timestamps, launcher)
    if service:
        code = show_service(supervised_job(job, "logs", reached), service, choice, output)
    else:
        code = stream(deployer, choice, output)
    if code:
        raise Failed("", code)


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
    from jobctl.inside import exec_in_node
    from jobctl.jobs import Reached
    from jobctl.running import running_job

    raise typer.Exit(
        exec_in_node(
            running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace)), node, _rest(ctx, "exec")
        )
    )


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
    from jobctl.inside import run_like_node
    from jobctl.jobs import Where, as_started, compile_job

    compiled = compile_job(job, overrides, as_started(job, Where(target, hosts, on, exclude)))
    raise typer.Exit(run_like_node(compiled, node, _rest(ctx, "run"), ssh_config, accept_new))


def _rest(ctx: typer.Context, name: str) -> list[str]:
    rest: list[str] | None = ctx.obj
    if not rest:
        raise Failed("no command is given", 2, f"write it after `--`: jobctl {name} -- env")
    return rest


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


COMMANDS: Commands = {"logs": logs, "exec": exec_, "run": run, "pull": pull}
