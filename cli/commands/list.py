"""`jobctl list`: the jobs known here, or those on hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobctl import console
from jobctl.options import AcceptNew, Format, Hosts, Output, SshConfig
from jobctl.views.failure import Failed, command

if TYPE_CHECKING:
    from jobctl.jobspec.operations.inspect.listing import HostJobs
    from jobctl.jobspec.operations.resolve.job import Reached


@command
def list_(
    hosts: Hosts = None,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also jobs that are down, from this machine's history.")
    ] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """List the jobs known here; with --hosts, those on hosts.

    With --hosts: whose they are, and which devices are used and free.

    Example: jobctl list --all
    """
    from jobctl.jobspec.operations.resolve.job import Reached

    if hosts is None:
        _show_known(output, every=every)
    elif every:
        raise Failed("`--all` adds the jobs of this machine's history, and `--hosts` asks hosts", 2, "leave one out")
    else:
        _show_on_hosts(hosts, Reached(ssh_config=ssh_config, accept_new=accept_new), output)


def _show_known(output: Format, *, every: bool) -> None:
    """Print the jobs that are up, and with `every` those that are down, too."""
    found = list(_known())
    if every:
        found = sorted([*({**job, "down": False} for job in found), *_down()], key=lambda job: str(job["job"]))
    if output is Format.json:
        console.out_json(found)
        return
    if not found:
        console.say("no jobs are known here" if every else "no jobs are up")
        return
    rows = [
        (j["job"], j["framework"] or "-", j["target"] or "-", _phase(j), j["replicas"] or "-", j["spec"] or "-")
        for j in found
    ]
    console.out(console.table(("JOB", "FRAMEWORK", "TARGET", "PHASE", "NODES", "SPEC"), rows))


def _phase(job: dict[str, Any]) -> str:
    if not job.get("down") or job["phase"] == "unknown":
        return str(job["phase"])
    since = (job["down_since"] or "").partition("T")[0]
    return f"{'down' if job['phase'] == 'stopped' else job['phase'] + ', down'} since {since}"


def _down() -> Iterator[dict[str, Any]]:
    """Yield the jobs that are down as data, with the same keys as jobs that are up, and what is known of their end."""
    from jobctl.jobspec.operations.inspect.as_json import past_json
    from jobctl.jobspec.operations.inspect.listing import jobs_that_are_down

    for past in jobs_that_are_down():
        yield past_json(past)


def _known() -> Iterator[dict[str, Any]]:
    """Yield the jobs that are up as data. The phase of one that cannot be seen is `unknown`, and an error says why."""
    from jobctl.jobspec.operations.inspect.as_json import state_json
    from jobctl.jobspec.operations.inspect.listing import known_jobs

    keep = ("job", "framework", "target", "phase", "generation", "replicas", "supervised")
    for job in known_jobs():
        about = {key: job.about.get(key) for key in ("owner", "spec")}
        if job.error is not None:
            console.error(f"job `{job.name}`: {job.error.message}", job.error.hint)
            known = {"job": job.name, "target": job.about.get("target"), "phase": "unknown"}
            yield {**dict.fromkeys(keep), **known, **about}
        elif job.handle is not None and job.observed is not None:
            state = state_json(job.handle, job.observed)
            yield {**{key: state[key] for key in keep}, **about}


def _show_on_hosts(hosts: Path, reached: Reached, output: Format) -> None:
    """Print the jobs on hosts. Ends with 3 if no host answers, 4 if some do not."""
    from jobctl.jobspec.operations.errors import failures_json
    from jobctl.jobspec.operations.inspect.listing import jobs_on_hosts
    from jobctl.views.outcome import tell_failures

    found, failures = jobs_on_hosts(hosts, reached)
    if output is Format.json:
        console.out_json({"hosts": [asdict(host) for host in found], "failed_hosts": failures_json(failures)})
    else:
        rows = [row for host in found for row in _rows(host)]
        console.out(console.table(("HOST", "JOB", "NODE", "OWNER", "DEVICES", "FREE"), rows))
    tell_failures(failures)
    if failures:
        raise Failed("", 4 if found else 3)


def _rows(host: HostJobs) -> list[tuple[str, ...]]:
    free = ",".join(host.free) or "-"
    jobs = host.jobs or [{"job": "-", "node": None, "name": None, "owner": "-", "devices": []}]
    return [
        (
            host.host,
            job["job"],
            (job["name"] or "-") if job["node"] is None else str(job["node"]),
            job["owner"] or "-",
            ",".join(job["devices"]) or "-",
            free,
        )
        for job in jobs
    ]
