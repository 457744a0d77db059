"""`jobctl logs`: what the processes print."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from jobctl.console import Failed, command
from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, LongNamespace, Node, Output, SshConfig


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
