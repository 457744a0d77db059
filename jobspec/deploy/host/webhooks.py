"""The webhooks by which launchers tell, on one host: kept as the values of secrets are."""

from __future__ import annotations

import json

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.launcher.telling.host_teller import WEBHOOKS


def leave_webhooks(host_job: HostJob, webhooks: Json | None) -> None:
    """Put them into a 0600 file beside the secrets, or leave none there."""
    if webhooks is None:
        host_job.remove([str(host_job.own / "secrets" / WEBHOOKS)])
    else:
        host_job.put_secret(WEBHOOKS, json.dumps(webhooks).encode())
