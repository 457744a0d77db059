"""Which devices of a host jobs use, as the labels of their containers say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.host.containers import labels_of
from jobctl.jobspec.deploy.model.untrusted import number_in

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob


def devices_in_use(host_job: HostJob) -> Mapping[str, str]:
    """Return the devices (`gpu:0`) that running containers of jobs use on a host, and whose they are (`JOB of OWNER`)."""
    return {
        device: f"{job['job']} of {job['owner'] or 'somebody'}"
        for job in jobs_of(host_job)
        for device in job["devices"]
    }


def jobs_of(host_job: HostJob) -> list[dict[str, Any]]:
    """Return what runs of all jobs on a host: job, node (None for a service, which has a name), owner, devices.

    Other programs may use the same labels; a container that names no job is not jobctl's.
    """
    with host_job.engine.asked() as client:
        found = host_job.engine.answer(client.containers(filters={"label": "jobctl.node"}), list)
    jobs = [_job(labels) for labels in map(labels_of, found) if labels.get("jobctl.job")]
    return sorted(jobs, key=lambda job: (job["job"], job["node"] is None, job["node"] or 0, job["name"] or ""))


def _job(labels: Mapping[str, str]) -> dict[str, Any]:
    node = number_in(labels.get("jobctl.node"))
    return {
        "job": labels["jobctl.job"],
        "node": node,
        "name": labels.get("jobctl.node") if node is None else None,
        "owner": labels.get("jobctl.owner"),
        "devices": [device for device in labels.get("jobctl.devices", "").split(",") if device],
    }
