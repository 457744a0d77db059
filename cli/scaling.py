"""What `scale` does: `up` of the same job, with another number of nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobctl.bringup import Options, up_job
from jobctl.changed import compiled_as_started, say_drift
from jobctl.console import Failed
from jobctl.naming import name_of
from jobctl.outcome import SETTLED, raise_code
from jobctl.ownership import refuse_other_folder


def scale_job(arguments: list[str], ssh_config: Path | None, accept_new: bool, options: Options) -> None:
    """Bring the job up with so many nodes as the last of the arguments says; everything else is as it was started."""
    from jobctl.jobs import Where, as_started, compile_job, job_of_name
    from jobctl.jobspec.deploy.model.observed import phase
    from jobctl.planning import inventory_for, planned
    from jobctl.running import refuse

    job, count = _read(arguments)
    name = name_of(job)
    about = job_of_name(name).about()
    if about is None:
        raise Failed(f"job `{name}` is not up", 2, "`jobctl up` starts it")
    if about.get("target") == "kubernetes":
        raise refuse("scale")
    refuse_other_folder(job_of_name(name), job, options.take_over)
    compiled = compiled_as_started(name) or compile_job(job, about.get("set"), as_started(job, Where()), quiet=True)
    say_drift(job_of_name(name))
    plan, deployer = planned(compiled, ssh_config, accept_new, count)
    now, _ = phase(deployer.observe())
    if now in SETTLED:
        raise Failed(f"job `{name}` is {now}: there is nothing to scale", 2, "`jobctl up` starts it")
    options = replace(options, start=deployer.started_with())
    raise_code(up_job(deployer, compiled, plan, inventory_for(compiled, ssh_config, accept_new), options))


def _read(arguments: list[str]) -> tuple[str | None, int]:
    *job, count = arguments
    if len(job) > 1 or not count.isdigit() or int(count) < 1:
        raise Failed("`scale` takes a job and a number of nodes", 2, "for example `jobctl scale my-job 3`")
    return (job[0] if job else None), int(count)
