"""`jobctl wait`: until the job ends."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from jobctl import console
from jobctl.options import AcceptNew, ClusterContext, Format, Hosts, Job, Namespace, Output, SshConfig, duration
from jobctl.views.failure import Failed, command


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
    from jobctl.jobspec.operations.lifecycle.wait import goes_on, wait_until_ended
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.running import running_handle
    from jobctl.views.status import show_result

    handle = running_handle(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    state = wait_until_ended(handle, None if timeout is None else duration(timeout), console.say)
    name, now = handle.job.name, state.phase
    told = {"job": name, "phase": now, "reason": state.reason}
    if not state.over:
        raise Failed(goes_on(state, f"{timeout}"), 124, details=told)
    if output is Format.text:
        show_result(handle, state)
    elif now == "succeeded":
        console.out_json(told)
    else:
        raise Failed(f"job `{name}` {now}: {state.reason}", 1, details=told)
    if now != "succeeded":
        raise typer.Exit(1)
