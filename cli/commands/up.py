"""`jobctl up`: start a job, or change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobctl.console import command
from jobctl.options import (
    AcceptNew,
    BreakLock,
    ClusterContext,
    Exclude,
    Format,
    Hosts,
    Job,
    Namespace,
    On,
    Output,
    Set,
    SshConfig,
    TakeOver,
    TargetOption,
)

if TYPE_CHECKING:
    pass


@command
def up(
    job: Job = None,
    hosts: Hosts = None,
    on: On = None,
    exclude: Exclude = None,
    target: TargetOption = None,
    overrides: Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the steps, do nothing.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Stream logs; exit with the job's result. Ctrl-C detaches.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train anew, into a new checkpoint subdirectory.")] = False,
    no_supervise: Annotated[bool, typer.Option("--no-supervise", help="Leave no supervisor behind.")] = False,
    skip_check: Annotated[bool, typer.Option("--skip-check", help="Skip the preflight of hosts.")] = False,
    recreate: Annotated[bool, typer.Option("--recreate", help="New containers for all nodes.")] = False,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Start a job, or change it to what the spec says.

    Returns once every node runs, and leaves a supervisor behind that restarts what dies.

    Example: jobctl up examples/torch-resnet/job.yaml --follow
    """
    from jobctl.bringup import Options, up_job
    from jobctl.jobs import Where, as_started, compile_job
    from jobctl.outcome import raise_code
    from jobctl.ownership import refuse_move
    from jobctl.planning import inventory_for, planned

    where = as_started(job, Where(target, hosts, on, exclude, context, namespace))
    compiled = compile_job(job, overrides, where, as_json=output is Format.json)
    refuse_move(compiled)
    options = Options(dry_run, follow, fresh, not no_supervise, not skip_check, break_lock, recreate, take_over, output)
    if compiled.target == "kubernetes":
        from jobctl.clusters import up_in_cluster

        raise_code(up_in_cluster(compiled, where, options))
        return
    made, deployer = planned(compiled, ssh_config, accept_new)
    code = up_job(deployer, compiled, made, inventory_for(compiled, ssh_config, accept_new), options)
    raise_code(code)
