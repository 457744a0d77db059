"""What the launcher, the framework's launcher that waits, the guards that wait and their ranks say to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import record

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from jobctl.jobspec.launcher.system.files import Json

# What each process learns as it starts, but for the framework's launcher in its environment (JOBCTL_STANDBY).


@record
class RankPreparation:
    """What a rank's interpreter has to import before it waits."""

    fsize: int  # the limit on files that it goes on with
    folder: str  # that of the hook, which is first on the path
    pythonpath: Optional[str]  # as it was
    fd: int  # of the channel to its guard
    command: List[str]
    imports: Sequence[Sequence[str]]
    first: str  # what Python puts first into sys.path
    name: str  # of the script

    def to_json(self) -> Json:
        """Return its JSON form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Json) -> RankPreparation:
        """Return what `to_json` has written."""
        return cls(**data)


@record
class GuardPreparation:
    """The rank that a guard has to start, and has wait."""

    hook: str  # the folder of the hook
    imports: Sequence[Sequence[str]]
    command: List[str]
    fd: int  # of the channel to who started the guard
    changing: Sequence[str] = ()  # the framework's variables that may differ when it starts

    def to_json(self) -> Json:
        """Return its JSON form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Json) -> GuardPreparation:
        """Return what `to_json` has written."""
        return cls(**data)


@record
class Trial:
    """How the framework's launcher is tried, where nobody knows what it gives the guards that it starts."""

    argv: List[str]  # its arguments
    guard: List[str]  # what it starts for each process
    nproc: int

    @classmethod
    def from_json(cls, data: Json) -> Trial:
        """Return the trial that a NodePreparation has."""
        return cls(**data)


@record
class NodePreparation:
    """What the framework's launcher has to start and to import before it waits."""

    environs: List[Dict[str, str]]  # those of the guards; a trial shows them where there is one
    guard: List[str]  # what starts a guard that waits
    command: List[str]  # of each rank
    hook: str
    imports: Sequence[Sequence[str]]
    apart: bool  # whether each guard leads a session
    module: str  # of the framework's launcher, or module and function of it
    local: str = "LOCAL_RANK"  # the variable that has the local rank
    trial: Optional[Trial] = None
    changing: Sequence[str] = ()  # as a GuardPreparation has them
    meets: Sequence[str] = ()  # the variables with where rank 0 listens, and with the rank

    def to_json(self) -> Json:
        """Return its JSON form."""
        return {**vars(self), "trial": None if self.trial is None else dict(vars(self.trial))}

    @classmethod
    def from_json(cls, data: Json) -> NodePreparation:
        """Return what `to_json` has written."""
        trial = data["trial"]
        return cls(**{**data, "trial": None if trial is None else Trial.from_json(trial)})


@record
class TrialOutcome:
    """The environments of guards, and whether each leads a session; or, in `off`, why nobody knows."""

    environs: List[Dict[str, str]]
    apart: bool = False
    off: Optional[str] = None

    def to_json(self) -> Json:
        """Return its JSON form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Json) -> TrialOutcome:
        """Return what `to_json` has written."""
        return cls(**data)


# What each of them tells the process that started it, and how that has it go on.


@record
class StandbyNews:
    """How a process of the standby is: one of these at a time."""

    off: Optional[str] = None  # why it cannot wait
    ready: bool = False  # it waits
    cold: Optional[str] = None  # why the rank cannot go on, although it waited
    go: bool = False  # the rank goes on
    memory: Optional[int] = None  # beside `ready`: what the rank takes, in bytes

    def to_json(self) -> Json:
        """Return it without what is not set."""
        return {name: value for name, value in vars(self).items() if value is not None and value is not False}

    @classmethod
    def from_json(cls, data: Json) -> StandbyNews:
        """Return what `to_json` has written."""
        return cls(**data)


@record
class RankStart:
    """What a rank goes on with; `cold` is the file that says why it went on cold, if it did."""

    environ: Dict[str, str]
    cold: str

    def to_json(self) -> Json:
        """Return its JSON form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Json) -> RankStart:
        """Return what `to_json` has written."""
        return cls(**data)


@record
class GuardStart:
    """What a guard goes on with, its task in JOBCTL_PROCESS, and the log for its own words."""

    environ: Dict[str, str]
    log: str
    meets: Optional[str] = None  # where rank 0 of the job listens for it, as address:port
    head_start: float = 0.5  # seconds in which that listens, if its script does so at once

    def to_json(self) -> Json:
        """Return its JSON form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Json) -> GuardStart:
        """Return what `to_json` has written."""
        return cls(**data)


@record
class Gathering:
    """How the framework's launchers meet."""

    nodes: int  # how many they are
    place: Optional[str] = None  # where that of the first node listens for this one, as address:port
    alone: bool = False  # whether this node has the address at which they meet, and no other one has

    def to_json(self) -> Json:
        """Return its JSON form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Json) -> Gathering:
        """Return what `to_json` has written."""
        return cls(**data)


@record
class FrameworkStart:
    """What the framework's launcher goes on with."""

    argv: Sequence[str]
    guard: List[str]  # what it starts for each process: it finds the guards that wait by this
    environ: Dict[str, str]
    log: str
    gathering: Gathering

    def to_json(self) -> Json:
        """Return its JSON form."""
        return {**vars(self), "gathering": self.gathering.to_json()}

    @classmethod
    def from_json(cls, data: Json) -> FrameworkStart:
        """Return what `to_json` has written."""
        return cls(**{**data, "gathering": Gathering.from_json(data["gathering"])})
