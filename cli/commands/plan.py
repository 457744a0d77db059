"""`jobctl plan`: what `up` would do now."""

from __future__ import annotations

from typing import Annotated

import typer

from jobctl import console
from jobctl.options import (
    AcceptNew,
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
    joined,
    target_name,
)
from jobctl.views.failure import command


@command
def plan(
    job: Job = None,
    hosts: Hosts = None,
    on: On = None,
    exclude: Exclude = None,
    target: TargetOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also ranks, devices, endpoints and env of the whole job.")
    ] = False,
    overrides: Set = None,
    take_over: TakeOver = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Say what `up` would do now, and why.

    Step by step with its cause. Exit code 0: nothing to do, 10: changes.

    Example: jobctl plan job.yaml --explain
    """
    from jobctl.jobspec.operations.lifecycle.base import UpOptions
    from jobctl.jobspec.operations.lifecycle.open import planned_job
    from jobctl.jobspec.operations.resolve.job import Reached, Where, as_started, compile_job
    from jobctl.jobspec.operations.resolve.moves import refuse_move
    from jobctl.jobspec.operations.resolve.ownership import warn_of_refusal
    from jobctl.views.outcome import show_steps, tell_failures
    from jobctl.views.plan import explain_plan
    from jobctl.views.reporter import Terminal

    reporter = Terminal(output)
    where = as_started(job, Where(target_name(target), hosts, joined(on), joined(exclude), context, namespace))
    compiled = compile_job(job, overrides, where, reporter)
    reached = Reached(None, ssh_config, accept_new, context, namespace)
    refuse_move(compiled, reached)
    planned = planned_job(compiled, reached)
    made, handle = planned.plan, planned.job.handle
    change = planned.change(UpOptions(take_over=take_over))
    tell_failures(handle.failures)
    warn_of_refusal(handle, compiled, made, reporter, take_over=take_over)
    whole = {"job": made.job}
    if explain:
        from jobctl.jobspec.operations.inspect.explain import explain as explanation_of

        explained = explanation_of(made)
        if output is Format.json:
            whole = explained.data()
        else:
            explain_plan(explained)
            console.out()
    show_steps(whole, change, handle.failures, output)
    if handle.failures:
        raise typer.Exit(4)
    if change.steps or change.changed:
        raise typer.Exit(10)
