"""`jobctl plan`: what `up` would do now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobctl import console
from jobctl.console import command
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
    TargetOption,
)

if TYPE_CHECKING:
    from jobctl.bringup import Steps
    from jobctl.jobspec.deploy.apply.deployer import Handle


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
    from jobctl.bringup import Options, change_of, show_steps
    from jobctl.changed import changed_keys
    from jobctl.clusters import changes_in_cluster
    from jobctl.jobs import Where, as_started, compile_job
    from jobctl.outcome import tell_failures
    from jobctl.ownership import refuse_move, warn_of_refusal
    from jobctl.planning import explain_plan, planned

    where = as_started(job, Where(target, hosts, on, exclude, context, namespace))
    compiled = compile_job(job, overrides, where, as_json=output is Format.json)
    refuse_move(compiled)
    handle: Handle
    change: Steps
    if compiled.target == "kubernetes":
        made, handle, change = changes_in_cluster(compiled, where)
    else:
        made, handle = found = planned(compiled, ssh_config, accept_new)
        change = change_of(found[1], made, Options(changed=changed_keys(compiled, *found)))
    tell_failures(handle.failures)
    warn_of_refusal(handle, compiled, made)
    whole = {"job": made.job}
    if explain and output is Format.json:
        from jobctl.jobspec.plan.serial import plan_data

        whole = plan_data(made)
    elif explain:
        explain_plan(made)
        console.out()
    show_steps(whole, change, output)
    if handle.failures:
        raise typer.Exit(4)
    if change.steps or change.changed:
        raise typer.Exit(10)
