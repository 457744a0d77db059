"""`jobctl logs`: what the processes print."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Optional

import typer

from jobctl.options import (
    AcceptNew,
    ClusterContext,
    Format,
    Hosts,
    Job,
    LongNamespace,
    Node,
    Output,
    SshConfig,
    duration,
)
from jobctl.views.failure import Failed, command


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
    launcher: Annotated[
        bool, typer.Option("--launcher", help="Also the output of torchrun and other launchers.")
    ] = False,
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
    from jobctl.jobspec.operations.inspect.logs import Choice
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.names import is_service, node_number
    from jobctl.views.logs import Form, show_logs
    from jobctl.views.outcome import raise_code

    found = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    plan = found.handle.plan
    service = node if node and is_service(plan, node) else None
    # A node may be of an earlier generation.
    number = None if node is None or service else node_number(plan, node)
    moment = None if since is None else _moment(since)
    choice, form = Choice(number, rank, generation, tail, moment, launcher), Form(follow, timestamps, output)
    if service is None:
        raise_code(show_logs(found.handle, choice, form))
        return
    if form != Form(follow) or choice != Choice(tail=tail):
        raise Failed(f"`logs --node {service}` takes `-f` and `--tail` only", 2, "it has no ranks and no generations")
    raise_code(found.deployer("logs").show_log(service, tail, follow=follow))


def _moment(text: str) -> float:
    """Return the moment that `--since` means: a time, or so long ago. Ends with 2 for anything else."""
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).timestamp()
    try:
        return time.time() - duration(text)
    except Failed:
        raise Failed(f"`{text}` is no time", 2, "write how long ago, `10m`, or when, `2026-01-31T14:00:00`") from None
