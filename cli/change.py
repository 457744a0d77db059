"""Commands that change what runs: plan, up, supervise, stop, restart, down."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from jobctl import console
from jobctl.console import Commands, Failed, command
from jobctl.options import BreakLock, Exclude, Format, Hosts, Job, Node, On, Output, Set, TargetOption

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
    output: Output = Format.text,
) -> None:
    """Say what `up` would do now, and why.

    Step by step with its cause. Exit code 0: nothing to do, 10: changes.

    Example: jobctl plan job.yaml --explain
    """
    from jobctl.jobs import Where, compile_job, plan_of
    from jobctl.planning import explain_plan, steps_of

    compiled = compile_job(job, overrides, Where(target, hosts, on, exclude), as_json=output is Format.json)
    made = plan_of(compiled)
    # On hosts nothing can be observed yet; what the job would be can be told all the same.
    steps, why_none = steps_of(made) if made.target == "local" or not explain else ((), "")
    if output is Format.json:
        from jobctl.jobspec.plan.serial import plan_data

        whole = plan_data(made) if explain else {"job": made.job}
        console.out_json({**whole, "steps": [{"kind": s.kind, "target": s.target, "cause": s.cause} for s in steps]})
    else:
        if explain:
            explain_plan(made)
            console.out()
        for step in steps:
            console.out(str(step))
        if not steps and why_none:
            console.say(why_none)
    if steps:
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
    break_lock: BreakLock = False,
    output: Output = Format.text,
) -> None:
    """Start a job, or change it to what the spec says.

    Returns once every node runs, and leaves a supervisor behind that restarts what dies.

    Example: jobctl up examples/torch-resnet/job.yaml --follow
    """
    del skip_check  # the preflight is one of hosts; this machine needs none
    from jobctl.bringup import Options, up_job
    from jobctl.jobs import Where, compile_job, plan_of

    compiled = compile_job(job, overrides, Where(target, hosts, on, exclude), as_json=output is Format.json)
    options = Options(dry_run, follow, fresh, not no_supervise, break_lock, output)
    code = up_job(compiled, plan_of(compiled), options)
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
def stop(job: Job = None, timeout: Timeout = None, break_lock: BreakLock = False, output: Output = Format.text) -> None:
    """SIGTERM to every rank; `up` resumes.

    Everything stays in place, and training goes on from the last checkpoint.

    Example: jobctl stop my-job
    """
    from jobctl.bringup import stop_job

    stop_job(job, timeout, break_lock, output)


@command
def restart(job: Job = None, node: Node = None, break_lock: BreakLock = False, output: Output = Format.text) -> None:
    """Begin a new generation with a fresh budget.

    With --node that node's launcher is started anew too.

    Example: jobctl restart my-job --node 1
    """
    from jobctl.bringup import restart_job

    restart_job(job, node, break_lock, output)


@command
def down(
    job: Job = None,
    hosts: Hosts = None,
    timeout: Timeout = None,
    break_lock: BreakLock = False,
    output: Output = Format.text,
) -> None:
    """Stop and remove everything of the job.

    Logs, outputs and checkpoints stay. Safe to repeat.

    Example: jobctl down my-job
    """
    from jobctl.bringup import down_job

    if hosts is not None:
        raise Failed("this version deploys to target `local` only", 2, "leave out `--hosts`")
    down_job(job, timeout, break_lock, output)


COMMANDS: Commands = {
    "plan": plan,
    "up": up,
    "supervise": supervise,
    "stop": stop,
    "restart": restart,
    "down": down,
}
