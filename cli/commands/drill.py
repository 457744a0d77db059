"""`jobctl drill`: rehearse a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobctl.console import command
from jobctl.options import AcceptNew, Format, Hosts, Job, Node, Output, SshConfig

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import FaultTarget


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
    victim: FaultTarget = "host" if host else "container" if container else "process"
    code = drill_job(deployer, victim, node, yes, timeout, output)
    if code:
        raise typer.Exit(code)
