"""What `list` prints: the jobs known here, or those on hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.console import Failed, failure_json
from jobctl.options import Format
from jobctl.views.status import status_json

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob


def known_jobs_table(output: Format) -> None:
    """Print the jobs that are up."""
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.store.jobdir import known_jobs, state_dir
    from jobctl.running import known_handle

    found = []
    for job in known_jobs(state_dir(console.environ())):
        try:
            about = job.about() or {}
            state = status_json(known_handle(job))
        except (
            Failed,
            DeployError,
        ) as failed:  # its context has gone from the kubeconfig, say: that hides no other job
            console.error(f"job `{job.name}`: {failed.message}", failed.hint)
            continue
        keep = ("job", "framework", "target", "phase", "generation", "replicas", "supervised")
        found.append({**{key: state[key] for key in keep}, "owner": about.get("owner"), "spec": about.get("spec")})
    if output is Format.json:
        console.out_json(found)
        return
    if not found:
        console.say("no jobs are up")
        return
    rows = [
        (j["job"], j["framework"] or "-", j["target"] or "-", j["phase"], j["replicas"], j["spec"] or "-")
        for j in found
    ]
    console.out(console.table(("JOB", "FRAMEWORK", "TARGET", "PHASE", "NODES", "SPEC"), rows))


def jobs_on_hosts(hosts: Path, ssh_config: Path | None, accept_new: bool, output: Format) -> None:
    """Print the jobs on hosts with their owners and devices. Ends with 3 if no host answers, 4 if some do not."""
    from jobctl.jobs import Where, job_of_name, known_hosts, ssh_options
    from jobctl.jobspec.deploy.model.inventory import Inventory
    from jobctl.jobspec.deploy.targets.hosts import Hosts
    from jobctl.jobspec.deploy.transport.fanout import fan_out
    from jobctl.outcome import tell_failures

    inventory = Inventory(known_hosts(Where(hosts=hosts)), ssh_options(ssh_config, accept_new, None))
    host_jobs = list(Hosts(job_of_name("list"), "ssh", inventory).host_jobs.values())
    outcome = fan_out(host_jobs, _on_host)
    failures = {host_job.host.name: error for host_job, error in outcome.failed.items()}
    found = [outcome.done[host_job] for host_job in host_jobs if host_job in outcome.done]
    if output is Format.json:
        console.out_json({"hosts": found, "failed_hosts": [failure_json(h, e) for h, e in failures.items()]})
    else:
        rows = [row for host in found for row in _rows(host)]
        console.out(console.table(("HOST", "JOB", "NODE", "OWNER", "DEVICES", "FREE"), rows))
    tell_failures(failures)
    if failures:
        raise Failed("", 4 if found else 3)


def _on_host(host_job: HostJob) -> dict[str, Any]:
    from jobctl.jobspec.deploy.host.devices import all_devices, jobs_of

    jobs = jobs_of(host_job)
    used = {device for job in jobs for device in job["devices"]}
    host = host_job.host
    known = host.devices if host.devices is not None else tuple(range(host.slots)) if host.slots is not None else None
    every = all_devices(host_job, known)
    free = [device for device in every if device.partition(":")[2] not in {d.partition(":")[2] for d in used}]
    return {"host": host.name, "jobs": jobs, "devices": every, "free": free}


def _rows(host: dict[str, Any]) -> list[tuple[str, ...]]:
    free = ",".join(host["free"]) or "-"
    jobs = host["jobs"] or [{"job": "-", "node": None, "name": None, "owner": "-", "devices": []}]
    return [
        (
            host["host"],
            job["job"],
            (job["name"] or "-") if job["node"] is None else str(job["node"]),
            job["owner"] or "-",
            ",".join(job["devices"]) or "-",
            free,
        )
        for job in jobs
    ]
