"""`jobctl pull`: fetch logs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from jobctl import console
from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, SshConfig
from jobctl.views.failure import command


@command
def pull(
    job: Job = None,
    hosts: Hosts = None,
    directory: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(metavar="DIR", help="Where to; default ./JOB-pull.", show_default=False),
    ] = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Fetch logs and outputs.

    Example: jobctl pull my-job results/
    """
    from jobctl.jobspec.operations.errors import failures_json
    from jobctl.jobspec.operations.inspect.pull import pull_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.running import running_handle
    from jobctl.views.outcome import raise_code, tell_failures

    handle = running_handle(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    into = directory or Path(f"{handle.job.name}-pull")
    copied = pull_job(handle, into)
    words = ", ".join(f"{count} {what if count != 1 else what.removesuffix('s')}" for what, count in copied.items())
    console.say(f"fetched {words} into {into}")
    if output is Format.json:
        told = {"job": handle.job.name, "directory": str(into), "fetched": dict(copied)}
        console.out_json({**told, "failed_hosts": failures_json(handle.failures)})
    tell_failures(handle.failures)
    raise_code(4 if handle.failures else 0)
