"""`jobctl drill`: rehearse a failure."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from jobctl import console
from jobctl.options import AcceptNew, Format, Hosts, Job, Node, Output, SshConfig, duration
from jobctl.views.failure import Failed, command


@command
def drill(
    job: Job = None,
    hosts: Hosts = None,
    container: Annotated[
        bool, typer.Option("--container", help="Kill the node's container (on local and slurm, its launcher).")
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
    from jobctl.jobspec.operations.lifecycle.drill import DrillFailed, plan_drill, price_of, run_drill
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.views.drill import show_drill
    from jobctl.views.status import show_tail

    deployer = running_job(job, Reached(hosts, ssh_config, accept_new)).breakable()
    fault = plan_drill(deployer, "host" if host else "container" if container else "process", node)
    if not yes:
        _confirm(price_of(deployer, fault))
    try:
        drill = run_drill(deployer, fault, duration(timeout))
    except DrillFailed as failed:
        show_tail(failed.observed)
        raise
    if output is Format.json:
        console.out_json({"job": deployer.job.name, **asdict(drill)})
    else:
        show_drill(fault, drill)
    if drill.continued is False:
        raise typer.Exit(1)


def _confirm(price: str) -> None:
    """Ask whether to go on. Ends with 2 if nobody is there to answer, or the answer is no."""
    if not sys.stdin.isatty():
        raise Failed("a drill breaks a job on purpose, and asks before", 2, "`--yes` if nobody is there to answer")
    console.say(f"this {price}")
    if not typer.confirm("go on?", err=True):
        raise Failed("nothing was done", 2)
