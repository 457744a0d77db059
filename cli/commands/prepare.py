"""`jobctl prepare`: bring images, code and data to hosts, start nothing."""

from __future__ import annotations

from jobctl import console
from jobctl.options import (
    AcceptNew,
    BreakLock,
    Exclude,
    Format,
    Hosts,
    Job,
    On,
    Output,
    Set,
    SkipCheck,
    SshConfig,
    TakeOver,
    TargetOption,
    joined,
    target_name,
)
from jobctl.views.failure import command


@command
def prepare(
    job: Job = None,
    hosts: Hosts = None,
    on: On = None,
    exclude: Exclude = None,
    target: TargetOption = None,
    overrides: Set = None,
    skip_check: SkipCheck = False,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """Bring image, code and data to all hosts, start nothing.

    Then `up` begins training at once. Checks the hosts, and whether secrets can be read. A job that runs goes on.

    Example: jobctl prepare job.yaml --hosts hosts.txt
    """
    from jobctl.jobspec.operations.errors import failures_json
    from jobctl.jobspec.operations.lifecycle import prepare as operation
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.lifecycle.open import planned_job
    from jobctl.jobspec.operations.resolve.job import Reached, Where, as_started, compile_job
    from jobctl.jobspec.operations.unsupported import refuse_unsupported
    from jobctl.views.outcome import raise_code, tell_failures
    from jobctl.views.reporter import Terminal

    reporter = Terminal(output)
    where = as_started(job, Where(target_name(target), hosts, joined(on), joined(exclude)))
    compiled = compile_job(job, overrides, where, reporter)
    refuse_unsupported(compiled.target, "prepare")
    planned = planned_job(compiled, Reached(None, ssh_config, accept_new))
    request = JobRequest(None, break_lock, take_over)
    done = operation.prepare(planned, request, reporter, check=not skip_check)
    tell_failures(done.failed)
    if output is Format.json:
        name = planned.plan.job
        console.out_json({"job": name, "prepared": list(done.hosts), "failed_hosts": failures_json(done.failed)})
    elif done.hosts:
        console.say(
            f"{', '.join(done.hosts)}: what the job needs is there; `jobctl up` with the same options starts the job"
        )
    raise_code(done.code)
