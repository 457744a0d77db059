"""`jobctl status`: what runs where."""

from __future__ import annotations

from typing import Annotated

import typer

from jobctl import console
from jobctl.console import command
from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, SshConfig


@command
def status(
    job: Job = None,
    hosts: Hosts = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it live until the job ends.")] = False,
    wide: Annotated[bool, typer.Option("--wide", help="One line per process.")] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Say what runs where.

    Read from the processes themselves, each time.

    Example: jobctl status my-job --watch
    """
    from jobctl.jobs import Reached
    from jobctl.running import running_job
    from jobctl.views.status import show_status, status_json, watch_status

    deployer = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    if watch:
        watch_status(deployer, wide, output)
    elif output is Format.json:
        console.out_json(status_json(deployer))
    else:
        show_status(deployer, wide)
    if deployer.failures:
        raise typer.Exit(3 if set(deployer.failures) >= set(deployer.where()) else 4)
