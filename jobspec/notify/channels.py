"""The channels of a job, as they are kept beside it for those who tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.store.files import write_json

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.notification import Channel
    from jobctl.jobspec.deploy.store.jobdir import JobDir


def keep_channels(job: JobDir, run: str, channels: tuple[Channel, ...]) -> None:
    """Keep the channels of a job, with their secrets, for what happens from now on."""
    if not channels:
        job.channels.unlink(missing_ok=True)
        job.outbox.unlink(missing_ok=True)
        return
    from jobctl.jobspec.notify.outbox import Outbox  # a job without channels does not pay for what messages say

    if not job.outbox.exists():
        size = job.events.stat().st_size if job.events.exists() else 0
        write_json(job.outbox, Outbox(size).to_json(), 0o600, sync=True)
    write_json(job.channels, {"run": run, "channels": [one.record() for one in channels]}, 0o600, sync=True)
