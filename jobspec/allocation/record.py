"""What the coordinator writes down for those who look at the job from elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import say
from jobctl.jobspec.launcher.system.files import read_json, write_json

if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from jobctl.jobspec.launcher.system.files import Json
FRESH = 2.0  # seconds after which the record is written again though nothing has changed


class Record:
    """The file `run/allocation.json`, and the events in `run/events.jsonl`."""

    def __init__(self, work: str, environ: Dict[str, str]) -> None:
        self.work = work
        self.me = os.urandom(6).hex()
        self.path = os.path.join(work, "run", "allocation.json")
        self.events = os.path.join(work, "run", "events.jsonl")
        self.fields: Json = {
            "version": 1,
            "by": self.me,
            "job_id": environ.get("SLURM_JOB_ID"),
            "restart": int(environ.get("SLURM_RESTART_COUNT") or 0),
            "next": None,  # the job of Slurm that goes on after this one
            "state": "starting",
            "reason": None,
            "nodes": {},
            "spares": [],
            "result": None,
        }
        self.written: Optional[float] = None
        self.superseded = False

    def write(self, **changes: Any) -> None:
        """Write it if anything has changed, or it has been long; not over what a successor has written."""
        changed = {key: value for key, value in changes.items() if self.fields[key] != value}
        if changed or self.written is None or time.monotonic() - self.written > FRESH:
            if self.written is not None and (read_json(self.path) or {}).get("by", self.me) != self.me:
                self.superseded = True  # somebody has given this machine up, which was cut off
                return
            self.fields.update(changed)
            self.written = time.monotonic()
            write_json(self.path, {**self.fields, "at": time.time()})

    def note_job(self, job_id: str) -> None:
        """Note which job of Slurm's this is now, as far as there is room: Slurm's queue has the job all the same."""
        path = os.path.join(self.work, "run", "job_id")
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            if file.read(64).strip() == job_id:
                return
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(job_id + "\n")
        except OSError as error:
            say("cannot write %s: %s" % (path, error.strerror))

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
