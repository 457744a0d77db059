"""What the coordinator writes down for those who look at the job from elsewhere."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import say
from jobctl.jobspec.launcher.files import write_json

if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from jobctl.jobspec.launcher.files import Json
FRESH = 2.0  # seconds after which the record is written again though nothing has changed


class Record:
    """The file `run/allocation.json`, and the events in `run/events.jsonl`."""

    def __init__(self, work: str, environ: Dict[str, str]) -> None:
        self.path = os.path.join(work, "run", "allocation.json")
        self.events = os.path.join(work, "run", "events.jsonl")
        self.fields: Json = {
            "version": 1,
            "job_id": environ.get("SLURM_JOB_ID"),
            "restart": int(environ.get("SLURM_RESTART_COUNT") or 0),
            "next": None,  # the job of Slurm that goes on after this one
            "state": "starting",
            "reason": None,
            "nodes": {},
            "spares": [],
            "result": None,
        }
        self.written = 0.0

    def write(self, **changes: Any) -> None:
        """Write it if anything has changed, or it has been long."""
        changed = {key: value for key, value in changes.items() if self.fields[key] != value}
        if changed or time.monotonic() - self.written > FRESH:
            self.fields.update(changed)
            self.written = time.monotonic()
            write_json(self.path, {**self.fields, "at": time.time()})

    def event(self, event: str, message: str, **fields: Any) -> None:
        """Add an event to the job's story, and to Slurm's log of the job."""
        say(message)
        line = json.dumps({"time": time.time(), "event": event, "message": message, "by": "allocation", **fields})
        try:
            with open(self.events, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            say("cannot write %s: %s" % (self.events, error))

    def result(self, phase: str, reason: str, code: Optional[int]) -> None:
        """Say how the job has ended."""
        self.write(state="ended", result={"phase": phase, "reason": reason, "at": time.time(), "exit_code": code})
        self.event(phase, "job %s: %s" % (phase, reason), exit_code=code)
