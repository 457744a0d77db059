"""`jobctl logs`: what the processes print."""

from __future__ import annotations

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
    Since,
    SshConfig,
    moment,
)
from jobctl.views.failure import Failed, command


@command
def logs(
    job: Job = None,
    hosts: Hosts = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    node: Node = None,
    rank: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--rank", metavar="R", min=0, help="One global rank.", show_default=False),
    ] = None,
    generation: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--generation", metavar="G", help="One generation.", show_default=False),
    ] = None,
    tail: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--tail", "-n", metavar="N", min=0, help="The last N lines of each process.", show_default=False),
    ] = None,
    since: Since = None,
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
    from jobctl.jobspec.operations.errors import failures_json
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
    choice, form = Choice(number, rank, generation, tail, moment(since), launcher), Form(follow, timestamps, output)
    if service is None:
        if missing := show_logs(found.handle, choice, form):
            raise Failed("", 4, details={"failed_hosts": failures_json(missing)})
        return
    if form != Form(follow) or choice != Choice(tail=tail):
        raise Failed(f"`logs --node {service}` takes `-f` and `--tail` only", 2, "it has no ranks and no generations")
    raise_code(found.deployer("logs").show_log(service, tail, follow=follow))
