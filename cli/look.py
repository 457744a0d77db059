"""Commands that look and change nothing: status, list, wait, events, report."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from jobctl import console
from jobctl.console import Commands, command
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
    from jobctl.status import show_status, status_json, watch_status

    deployer = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    if watch:
        watch_status(deployer, wide, output)
    elif output is Format.json:
        console.out_json(status_json(deployer))
    else:
        show_status(deployer, wide)
    if deployer.failures:
        raise typer.Exit(3 if set(deployer.failures) >= set(deployer.where()) else 4)


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


@command
def list_(
    hosts: Hosts = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """List the jobs known here; with --hosts, those on hosts.

    With --hosts: whose they are, and which devices are used and free.

    Example: jobctl list --hosts hosts.txt
    """
    from jobctl.listing import jobs_on_hosts, known_jobs_table

    if hosts is None:
        known_jobs_table(output)
    else:
        jobs_on_hosts(hosts, ssh_config, accept_new, output)


@command
def wait(
    job: Job = None,
    hosts: Hosts = None,
    timeout: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--timeout", metavar="T", help="Give up waiting after T (exit 124).", show_default=False),
    ] = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Wait until the job ends; exit with its result.

    0: succeeded, 1: failed or stopped, 124: --timeout is over.

    Example: jobctl wait my-job --timeout 2h
    """
    from jobctl.following import wait_for
    from jobctl.jobs import Reached
    from jobctl.running import running_job

    code = wait_for(running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace)), timeout, output)
    if code:
        raise typer.Exit(code)


@command
def events(
    job: Job = None,
    hosts: Hosts = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Tell what happened and why.

    Example: jobctl events my-job -f
    """
    from jobctl.following import show_events
    from jobctl.jobs import Reached
    from jobctl.running import running_job

    show_events(running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace)), follow, output)


@command
def report(
    job: Job = None,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to; default ./JOB-report.html, `-`: stdout.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tell the story of a run as a web page.

    One HTML file that needs nothing else: what each node did, progress, failures and what they cost, and which part of
    the time was effective training. From what this machine recorded; nothing is connected to.

    Example: jobctl report my-job -o story.html
    """
    from jobctl.reporting import report_job

    report_job(job, output)


COMMANDS: Commands = {
    "check": check,
    "status": status,
    "list": list_,
    "wait": wait,
    "events": events,
    "report": report,
}
