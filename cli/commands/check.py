"""`jobctl check`: whether hosts are fit."""

from __future__ import annotations

from typing import Annotated

import typer

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


@command
def check(
    job: Job = None,
    hosts: Hosts = None,
    on: On = None,
    exclude: Exclude = None,
    target: TargetOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also import the framework in a container.")] = False,
    overrides: Set = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Check whether hosts are fit for the job.

    Every host side by side; what is wrong is told with its remedy. Works without a job too. Exit code 3: something is.

    Example: jobctl check job.yaml --hosts hosts.txt
    """
    from jobctl.jobs import Where
    from jobctl.preflight import check_job

    check_job(
        job, overrides, Where(target, hosts, on, exclude, context, namespace), ssh_config, accept_new, deep, output
    )
