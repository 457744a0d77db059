"""`jobctl up`: start a job, or change it."""

from __future__ import annotations

from typing import Annotated

import typer

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
    SkipCheck,
    SshConfig,
    TakeOver,
    TargetOption,
    joined,
    target_name,
)
from jobctl.views.failure import command


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
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Train from the start, into a new checkpoint subdirectory.")
    ] = False,
    no_supervise: Annotated[bool, typer.Option("--no-supervise", help="Leave no supervisor behind.")] = False,
    skip_check: SkipCheck = False,
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
    from jobctl.jobspec.operations.lifecycle.base import UpOptions
    from jobctl.jobspec.operations.lifecycle.open import planned_job
    from jobctl.jobspec.operations.resolve.job import Reached, Where, as_started, compile_job, refuse_missing_files
    from jobctl.jobspec.operations.resolve.moves import refuse_move
    from jobctl.jobspec.operations.resolve.ownership import warn_of_refusal
    from jobctl.jobspec.operations.unsupported import refuse_unsupported
    from jobctl.views.outcome import finish_up, raise_code, show_steps, tell_failures
    from jobctl.views.reporter import Terminal

    reporter = Terminal(output)
    where = as_started(job, Where(target_name(target), hosts, joined(on), joined(exclude), context, namespace))
    compiled = compile_job(job, overrides, where, reporter)
    reached = Reached(None, ssh_config, accept_new, context, namespace)
    refuse_move(compiled, reached)
    if fresh:
        refuse_unsupported(compiled.target, "up --fresh")
    planned = planned_job(compiled, reached)
    handle = planned.job.handle
    options = UpOptions(fresh, not no_supervise, not skip_check, break_lock, recreate, take_over)
    if dry_run:
        refuse_missing_files(compiled)
        change = planned.change(options)
        tell_failures(handle.failures)
        warn_of_refusal(handle, compiled, planned.plan, reporter, take_over=take_over)
        show_steps({"job": planned.plan.job}, change, handle.failures, output)
        raise_code(4 if handle.failures else 0)
        return
    done = planned.up(options, reporter)
    raise_code(finish_up(handle, done, follow=follow, output=output))
