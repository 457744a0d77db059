"""What node runners do when the machine of the batch script is lost: Slurm keeps the allocation, and nobody is left to end it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import MARGIN, say
from jobctl.jobspec.allocation.record import Record
from jobctl.jobspec.allocation.scheduler import COMMAND_TIMEOUT, HAND_OVER, Scheduler, SlurmSilent
from jobctl.jobspec.launcher.system.files import read_json

if TYPE_CHECKING:
    from typing import Dict, Optional

    from jobctl.jobspec.launcher.system.files import Json
LEASE_END_MARGIN = 3.0  # seconds beyond the end of leases before Slurm is asked
ASK_INTERVAL = 5.0  # seconds between two questions
TAKEOVER_TIMEOUT = HAND_OVER + 5 * COMMAND_TIMEOUT  # seconds that another node runner gets for what it has begun


class Succession:
    """Has the job go on in another allocation, once Slurm itself has given the machine of the batch script up."""

    def __init__(self, work: str, settings: Json, environ: Dict[str, str]) -> None:
        self.work, self.settings, self.environ = work, settings, environ
        self.job_id = environ.get("SLURM_JOB_ID", "")
        self.scheduler = Scheduler(work, settings, self.job_id)
        self.scheduler.may_follow = True  # the batch script may have asked, or another node runner
        self.after = float(settings["host_timeout"]) + MARGIN + LEASE_END_MARGIN
        self.home: Optional[str] = None  # the machine of the batch script
        self.next = 0.0
        self.taken: Optional[float] = None  # since when another node runner is known to do it
        self.turn = 0  # how many have not got anywhere

    def consider(self, silent: float, now: float) -> None:
        """Act if the batch script has been silent for long, and the allocation has its machine no more."""
        if silent < self.after or now < self.next or self.home is None:
            return
        self.next = now + ASK_INTERVAL
        listed = self.scheduler.machines()
        if listed and self.home not in listed and self.is_first(now):
            self.go_on()

    def is_first(self, now: float) -> bool:
        """Say whether no other node runner does it already; one that has not got anywhere for long counts no more."""
        if self.taken is not None and now - self.taken > TAKEOVER_TIMEOUT:
            self.taken, self.turn = None, self.turn + 1
        restart = self.environ.get("SLURM_RESTART_COUNT") or "0"
        name = "lost-%s-%s" % (self.job_id, restart) + (".%d" % self.turn if self.turn else "")
        path = os.path.join(self.work, "run", name)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            self.taken = now if self.taken is None else self.taken
            return False
        except OSError as error:
            say("cannot write %s: %s" % (path, error.strerror))
            return False
        return True

    def go_on(self) -> None:
        """Have the job go on in another allocation, and end this one."""
        record = Record(self.work, self.environ)
        told = read_json(record.path) or {}
        if told.get("state") == "handed-over" and told.get("next") not in (None, self.job_id):
            self.scheduler.ask(["scancel", self.job_id])  # another one has submitted the next job, and got no further
            return
        record.fields.update(told, by=record.me)
        lost = "%s, the machine of the batch script, is lost" % self.home
        try:
            following, words = self.scheduler.go_on_later()
        except SlurmSilent as error:
            say("%s, and Slurm does not say whether the job goes on: %s" % (lost, error))
            return  # the next turn asks again
        if following is None:
            record.result("failed", "%s, and the job cannot go on in another allocation: %s" % (lost, words), None)
        else:
            record.write(state="handed-over", reason="%s: %s" % (lost, words), next=following)
            record.event("handed-over", "%s: %s" % (lost, words), job_id=following, at=time.time())
            record.note_job(following)
        if following != self.job_id:
            self.scheduler.ask(["scancel", self.job_id])
