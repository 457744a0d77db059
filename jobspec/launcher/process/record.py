"""What the guard of a process writes down for the launcher, in a file for each process."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import from_known, record
from jobctl.jobspec.launcher.system.files import read_json
from jobctl.jobspec.launcher.system.processes import start_ticks

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.system.files import Json


@record
class Ending:
    """How a process ended that was started again since."""

    rank: Optional[int]
    exit_code: int
    finished_at: float  # seconds since the epoch
    ran: float = 0.0  # seconds


@record
class ProcessRecord:
    """A process of a node. The guard writes what has a name of `guard…` for the launcher only."""

    local_rank: int
    rank: Optional[int] = None
    state: str = "pending"  # then running, then exited or failed
    pid: Optional[int] = None
    start_ticks: Optional[int] = None  # with the pid, it names the process for ever
    exit_code: Optional[int] = None
    signal: Optional[int] = None  # that has ended it
    started_at: Optional[float] = None  # seconds since the epoch, as `finished_at`
    finished_at: Optional[float] = None
    starts: int = 0  # how often it was started in this generation; 0 before its guard has begun
    guard_pid: Optional[int] = None
    guard_ticks: Optional[int] = None
    guard_before: Optional[Ending] = None  # how it ended the last time
    guard_standby: bool = False  # whether it was started from standby
    guard_cold: Optional[str] = None  # why not, although a process waited
    guard_why: Optional[str] = None  # why it could not be started, …
    guard_passes: bool = False  # … and whether it may be the next time
    device: Optional[str] = None  # from here on: what the launcher adds for its report
    step: Optional[int] = None
    own_seconds: Optional[float] = None  # that it needs by itself in each step, at least
    where: Optional[str] = None  # the function in which it hangs
    stack: Sequence[str] = ()

    def to_json(self) -> Json:
        """Return the form that the guard writes."""
        return {**vars(self), "guard_before": self.guard_before and dict(vars(self.guard_before))}

    @classmethod
    def from_json(cls, data: Json) -> ProcessRecord:
        """Return the record that a guard has written, maybe one of a newer version of jobctl."""
        before = data.get("guard_before")
        return from_known(cls, data, guard_before=from_known(Ending, before) if before else None)

    def for_report(self) -> Json:
        """Return the form that the launcher's report has."""
        data = {name: value for name, value in vars(self).items() if not name.startswith("guard")}
        if not self.starts:
            del data["starts"]
        if self.own_seconds is None:
            del data["own_seconds"]
        return data

    def ending(self) -> Ending:
        """Return how the process ended.

        A record that still says `running` is of a process whose guard was killed with it.
        """
        at = self.finished_at or time.time()
        code, ran = 137 if self.exit_code is None else self.exit_code, at - (self.started_at or at)
        return Ending(self.rank, code, at, ran)

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self.state == "running" and self.pid is not None and start_ticks(self.pid) == self.start_ticks

    def has_guard(self) -> bool:
        """Return whether the guard lives, and so will write down the end."""
        return self.guard_pid is not None and start_ticks(self.guard_pid) == self.guard_ticks

    def is_left(self) -> bool:
        """Return whether the process has ended, and nobody is there any more who will write that down."""
        return self.state == "running" and not self.is_alive() and not self.has_guard()


def read_record(path: str) -> Optional[ProcessRecord]:
    """Return the record in a file, None before there is one."""
    data = read_json(path)
    return None if data is None else ProcessRecord.from_json(data)


def latest_record(path: str) -> Tuple[Optional[ProcessRecord], bool]:
    """Return the record in a file, and whether its process has ended without anybody who will write that down.

    A guard that has ended may have done so since the file was read. So it is read again, and what it says then is final.
    """
    record = read_record(path)
    if record is None or not record.is_left():
        return record, False
    record = read_record(path)
    return record, record is not None and record.is_left()


def environs_of_guards(folder: str, nproc: int, local_name: str) -> Tuple[List[Dict[str, str]], bool]:
    """Return the environment that the framework's launcher gave each guard, and whether it leads a session. Raises OSError."""
    found, leads = [], False
    for local in range(nproc):
        record = read_record(os.path.join(folder, "%d.json" % local))
        pid = record.guard_pid or 0 if record else 0
        with open("/proc/%d/environ" % pid, "rb") as file:
            pairs = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if b"=" in entry]
        environ = {name: value for name, _, value in pairs if name != "JOBCTL_STANDBY"}
        if environ.get(local_name) != str(local):
            raise OSError("the environment of process %d cannot be read" % local)
        leads = os.getsid(pid) == pid
        found.append(environ)
    return found, leads
