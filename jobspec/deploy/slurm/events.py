"""What happened to a job in Slurm: what jobctl did, and what the allocation has written."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.deploy.model.untrusted import is_moment, parse_object
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.store.events import EventFile
from jobctl.jobspec.deploy.store.jobdir import JobDir


class AllocationEvents:
    """The events of this machine's history, and those in the job's directory."""

    def __init__(self, login: LoginNode, job: JobDir) -> None:
        self._written = EventFile(job.events)
        self._login, self._offset = login, 0

    def gather(self) -> None:
        """Do nothing: the allocation writes down by itself what happens, where all can read it."""

    def new(self) -> list[dict[str, Any]]:
        """Return what happened since the last call. Raises DeployError if the login node does not answer."""
        text = self._login.events(self._offset)
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        told = [event for line in whole.splitlines() if (event := parse_object(line)) and is_moment(event.get("time"))]
        return sorted([*self._written.new(), *told], key=lambda event: event["time"])
