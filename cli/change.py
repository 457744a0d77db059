"""Commands that change what runs: plan, up, supervise, stop, restart, down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from jobctl import console
from jobctl.console import Commands, command
from jobctl.options import (
    AcceptNew,
    BreakLock,
    ClusterContext,
    Exclude,
    Format,
    Hosts,
    Job,
    Namespace,
    Node,
    On,
    Output,
    Set,
    SshConfig,
    TakeOver,
    TargetOption,
)

if TYPE_CHECKING:
    from jobctl.bringup import Steps
    from jobctl.jobspec.deploy.apply.deployer import Handle, Victim

Timeout = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--timeout",
        metavar="T",
        help="How long processes get to end, e.g. 30s; default as in the spec.",
        show_default=False,
    ),
]


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
    from jobctl.planning import planned, reach_for

    where = as_started(job, Where(target, hosts, on, exclude, context, namespace))
    compiled = compile_job(job, overrides, where, as_json=output is Format.json)
    refuse_move(compiled)
    options = Options(dry_run, follow, fresh, not no_supervise, not skip_check, break_lock, recreate, take_over, output)
    if compiled.target == "kubernetes":
        from jobctl.clusters import up_in_cluster

        raise_code(up_in_cluster(compiled, where, options))
        return
    made, deployer = planned(compiled, ssh_config, accept_new)
    code = up_job(deployer, compiled, made, reach_for(compiled, ssh_config, accept_new), options)
    raise_code(code)


@command
def scale(
    arguments: Annotated[list[str], typer.Argument(metavar="[JOB] NODES", help="The job, and how many nodes it gets.")],
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """Give an elastic job another number of nodes.

    Within the range of the spec's `nodes`. Containers stay, processes go on from the last checkpoint. The next `up`
    takes as many nodes as there is room for again.

    Example: jobctl scale my-job 3
    """
    from jobctl.bringup import Options
    from jobctl.scaling import scale_job

    options = Options(break_lock=break_lock, take_over=take_over, output=output)
    scale_job(arguments, ssh_config, accept_new, options)


@command
def drill(
    job: Job = None,
    hosts: Hosts = None,
    container: Annotated[
        bool, typer.Option("--container", help="Kill the node's container (on local, its launcher), not a process.")
    ] = False,
    host: Annotated[bool, typer.Option("--host", help="Play that the node's host is lost, for a while.")] = False,
    node: Node = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", metavar="T", help="Give up after T.")] = "10m",
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """Rehearse a failure before the long run.

    Kills a process of the running job, and tells how long it took to notice, to stop and to go on, and whether
    training went on from its checkpoint. With --host nothing is killed: the host says nothing any more until
    `host_timeout` and 30 s are over, so its node is fenced, and moves. Asks first. Exit code 1: it did not go on.

    Example: jobctl drill my-job --container --node 1
    """
    from jobctl.drilling import drill_job
    from jobctl.jobs import Reached
    from jobctl.running import supervised_job

    deployer = supervised_job(job, "drill", Reached(hosts, ssh_config, accept_new))
    victim: Victim = "host" if host else "container" if container else "process"
    code = drill_job(deployer, victim, node, yes, timeout, output)
    if code:
        raise typer.Exit(code)


@command
def supervise(
    job: Job = None,
    background: Annotated[bool, typer.Option("--background", hidden=True)] = False,
) -> None:
    """Run the job's supervisor in the foreground.

    For systemd or tmux; ends when the job does. SIGTERM ends the supervisor, not the job.

    Example: jobctl supervise my-job
    """
    from jobctl.supervising import supervise_job

    supervise_job(job, background=background)


@command
def stop(
    job: Job = None,
    hosts: Hosts = None,
    timeout: Timeout = None,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """SIGTERM to every rank; `up` resumes.

    Everything stays in place, and training goes on from the last checkpoint.

    Example: jobctl stop my-job
    """
    from jobctl.clusters import stop_in_cluster
    from jobctl.ending import stop_job
    from jobctl.jobs import Reached
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
    from jobctl.ownership import refuse_other_folder
    from jobctl.running import running_job, supervised_job

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    handle = running_job(job, reached)
    refuse_other_folder(handle.job, job, take_over)
    if isinstance(handle, Cluster):
        stop_in_cluster(handle, timeout, break_lock, take_over, output)
    else:
        stop_job(supervised_job(job, "stop", reached), timeout, break_lock, take_over, output)


@command
def restart(
    job: Job = None,
    hosts: Hosts = None,
    node: Node = None,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Begin a new generation with a fresh budget.

    With --node that node's launcher is started anew too.

    Example: jobctl restart my-job --node 1
    """
    from jobctl.bringup import restart_job
    from jobctl.clusters import restart_in_cluster
    from jobctl.jobs import Reached
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
    from jobctl.ownership import refuse_other_folder
    from jobctl.running import running_job, supervised_job

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    handle = running_job(job, reached)
    refuse_other_folder(handle.job, job, take_over)
    if isinstance(handle, Cluster):
        restart_in_cluster(handle, node, break_lock, take_over, output)
    else:
        restart_job(supervised_job(job, "restart", reached), node, break_lock, take_over, output)


@command
def down(
    job: Job = None,
    hosts: Hosts = None,
    timeout: Timeout = None,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Stop and remove everything of the job.

    Logs, outputs and checkpoints stay. Safe to repeat.

    Example: jobctl down my-job
    """
    from jobctl.ending import down_job
    from jobctl.jobs import Reached
    from jobctl.ownership import refuse_other_folder
    from jobctl.running import running_job

    deployer = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    refuse_other_folder(deployer.job, job, take_over)
    down_job(deployer, timeout, break_lock, take_over, output)


COMMANDS: Commands = {
    "plan": plan,
    "up": up,
    "scale": scale,
    "drill": drill,
    "supervise": supervise,
    "stop": stop,
    "restart": restart,
    "down": down,
}
