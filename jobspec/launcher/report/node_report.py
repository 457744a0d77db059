"""What a launcher says of its node: the JSON in report.json, which jobctl reads (deploy/model/report_reader.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.process.record import ProcessRecord
from jobctl.jobspec.launcher.records import record

if TYPE_CHECKING:
    from typing import Optional, Sequence, TypedDict

    from jobctl.jobspec.launcher.system.files import Json

    class ProgressChanges(TypedDict, total=False):
        """How far a node is: fields of a NodeReport, with the values that they get."""

        progress: Optional[int]
        progress_at: Optional[float]

    class ReportChanges(ProgressChanges, total=False):
        """Fields of a NodeReport, with the values that they get."""

        generation: int
        epoch: float
        state: str
        exit_code: Optional[int]
        reason: Optional[str]
        started_at: Optional[float]
        finished_at: Optional[float]
        restarts: int
        process_restarts: int
        restart_reason: Optional[str]
        processes: Sequence[ProcessRecord]
        failure: Optional[Failure]
        standby: StandbyState
        start: Optional[StartWay]
        stacks_written: bool
        events: Optional[EventStamp]


DECLARED_DEAD = "dead.json"  # beside the report: which launcher a deployer has replaced; launchers do not write it
ENDED = ("succeeded", "failed", "fenced", "stopped")  # states of a node whose processes have ended


@record
class LauncherProcess:
    """The process of a launcher's guard; both numbers together name it for ever."""

    pid: int
    start_ticks: Optional[int]

    def to_json(self) -> Json:
        """Return the report's form."""
        return dict(vars(self))


@record
class StandbyState:
    """Whether the next generation can begin from processes that wait: `ready`, `warming` or `off`, and why."""

    state: str
    reason: Optional[str] = None


@record
class StartWay:
    """Whether all processes of a generation were started from standby, and if not, why."""

    standby: bool
    cold_because: Optional[str]


@record
class EventStamp:
    """Which file the events of a node are in, and how many it has had: what changes with each of them."""

    file: str
    count: int


@record
class NodeReport:
    """How a node is. Times are seconds since the epoch."""

    node: int
    role: str
    launcher: LauncherProcess
    standby: StandbyState
    generation: int = 0
    epoch: float = 0.0  # when the job was brought up from nothing: generations are counted from there
    state: str = "waiting"  # or setup, running, or one of ENDED
    artefact: Optional[str] = None  # what the deployer says the launcher was started from
    port: Optional[int] = None  # where it hears others
    exit_code: Optional[int] = None
    reason: Optional[str] = None
    started_at: Optional[float] = None
    finished_at: Optional[float] = None
    progress: Optional[int] = None  # the last step
    progress_at: Optional[float] = None
    restarts: int = 0
    process_restarts: int = 0  # how often processes were started again in this generation, which went on
    restart_reason: Optional[str] = None  # why, the last time
    processes: Sequence[ProcessRecord] = ()
    failure: Optional[Failure] = None
    order: Optional[Order] = None  # the one that launchers have begun, if it is newer than the control file's
    left: Sequence[int] = ()  # nodes that were elsewhere in the order before, see OldPlaces
    start: Optional[StartWay] = None  # how the generation was started
    stacks_written: bool = False  # whether this node has written its stacks because the generation hangs
    spare: bool = False  # whether the launcher is that of a hot spare
    events: Optional[EventStamp] = None  # None while there are none

    def to_json(self) -> Json:
        """Return the file's form."""
        data: Json = {"version": 1, **vars(self)}
        data.update(
            launcher=self.launcher.to_json(),
            standby=dict(vars(self.standby)),
            processes=[process.for_report() for process in self.processes],
            failure=self.failure and self.failure.to_json(),
            order=self.order and self.order.to_json(),
            left=list(self.left),
            start=self.start and dict(vars(self.start)),
            events=self.events and dict(vars(self.events)),
        )
        if not self.spare:
            del data["spare"]
        return data

    def go_on_from(self, last: Json, kept: Sequence[str] = ENDED) -> None:
        """Take over the order that an earlier launcher of this node reports, and how its generation has ended, if it has.

        `kept` are the states in which it has. Raises AttributeError, KeyError, TypeError or ValueError for what no launcher has written.
        """
        self.left = [int(node) for node in last.get("left") or ()]
        self.order = Order.from_json(last["order"]) if last.get("order") else None
        if last.get("state") not in kept:
            return
        failure = last.get("failure")
        self.processes = [ProcessRecord.from_json(process) for process in last.get("processes") or ()]
        self.failure = None if failure is None else Failure.from_json(failure)
        self.state, self.exit_code, self.reason = last["state"], last.get("exit_code"), last.get("reason")
        self.started_at, self.finished_at = last.get("started_at"), last.get("finished_at")
        self.progress, self.progress_at = last.get("progress"), last.get("progress_at")
