"""The webhooks by which launchers tell, on one host: kept as the values of secrets are."""

from __future__ import annotations

import json

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.transport.base import checked, put
from jobctl.jobspec.launcher.host_teller import WEBHOOKS


def leave_webhooks(host_job: HostJob, webhooks: Json | None) -> None:
    """Put them into a 0600 file beside the secrets, or leave none there."""
    path = host_job.own / "secrets" / WEBHOOKS
    if webhooks is None:
        host_job.remove([str(path)])
        return
    put(host_job.transport, str(path), json.dumps(webhooks).encode(), 0o600)
    argv = SCRIPTS.argv("link_secrets", str(host_job.own), str(host_job.work))
    checked(host_job.transport, argv, f"write {path}")
