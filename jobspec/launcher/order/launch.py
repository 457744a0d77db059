"""What a launcher learns of its node as it starts: the JSON in JOBCTL_LAUNCH, made from jobctl's plan.types.Launch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import from_known, record
from jobctl.jobspec.launcher.system.files import read_json

if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

    from jobctl.jobspec.launcher.system.files import Json

    Value = Union[str, "Slot"]


@record
class Slot:
    """A value that only the generation knows, by its name of plan.types.SlotName."""

    slot: str


@record
class TlsFiles:
    """Certificates for etcd, as paths."""

    ca: Optional[str] = None
    cert: Optional[str] = None
    key: Optional[str] = None


@record
class EtcdSettings:
    """Where the job's etcd is. `password` is the name of a secret."""

    endpoints: Sequence[str]  # host:port
    prefix: str
    tls: Optional[TlsFiles] = None
    user: Optional[str] = None
    password: Optional[str] = None

    @classmethod
    def from_json(cls, data: Json) -> EtcdSettings:
        """Return the settings that a launch has."""
        tls = data.get("tls")
        return from_known(cls, data, tls=None if tls is None else from_known(TlsFiles, tls))


@record
class StandbyTerms:
    """What a standby imports, in groups, and the module of the framework's launcher; `off` is why there is none.

    `changing` are the framework's variables that differ from one generation to the next. `meets` are those in which its
    launcher tells a process where rank 0 listens, and which rank the process is.
    """

    imports: Sequence[Sequence[str]]
    launcher: str
    off: str = ""
    changing: Sequence[str] = ()
    meets: Sequence[str] = ()


@record
class StallLines:
    """What the framework's launcher writes when it begins and ends to wait for others, and for how many seconds it may."""

    begin: str
    end: str
    seconds: float


@record
class Launch:
    """What this node runs, and how. jobctl's plan.types.Launch says what each field means.

    jobctl leaves out what has the default that is here, too.
    """

    node: int
    host: str
    role: str
    nproc: int
    start: Sequence[Value]
    command: List[str]
    env: Sequence[Tuple[str, Value]]
    log_name: str
    devices: Sequence[str]
    setup: Sequence[str]
    secrets: Sequence[str]
    workdir: Optional[str]
    interface: Optional[str]
    interface_env: Sequence[str]
    stop_grace: float
    hang_timeout: Optional[float]
    etcd: Optional[EtcdSettings] = None
    rank_env: Sequence[str] = ("RANK", "LOCAL_RANK")
    scrub: Sequence[str] = ()
    kept: Sequence[str] = ()
    process_env: Sequence[Tuple[str, Value]] = ()
    after: str = ""
    until: str = ""
    regroups: bool = False
    rejoin: Optional[int] = None
    peer_port: Optional[int] = None
    lost: str = ""
    stall: Optional[StallLines] = None
    rejoin_within: Optional[float] = None
    rejoin_after: float = 0.0
    apart: bool = False
    elsewhere: Sequence[str] = ()
    standby: Optional[StandbyTerms] = None
    spare: int = 0
    tells: bool = False

    @classmethod
    def from_json(cls, data: Json) -> Launch:
        """Return what JOBCTL_LAUNCH says, without what only jobctl needs. Raises KeyError or TypeError if a field is missing."""
        etcd, standby, stall = data.get("etcd"), data.get("standby"), data.get("stall")
        # An allocation that an earlier version began calls it so.
        earlier = {"peer_port": data.get("gossip_port", data.get("circle"))}
        return from_known(
            cls,
            {**earlier, **data},
            start=[value_of(value) for value in data["start"]],
            env=pairs_of(data["env"]),
            process_env=pairs_of(data.get("process_env", ())),
            etcd=None if etcd is None else EtcdSettings.from_json(etcd),
            standby=None if standby is None else from_known(StandbyTerms, standby),
            stall=None if stall is None else StallLines(*stall),
        )

    @property
    def has_session(self) -> bool:
        """Whether etcd decides, and another process keeps the lease there: not in clusters and allocations."""
        return self.etcd is not None and self.peer_port is None

    @property
    def shares_folder(self) -> bool:
        """Whether the nodes of a generation share a folder, see make_shared."""
        return Slot("shared_scratch") in [value for _, value in self.env]


def grace_in(own: Optional[str], launch: Launch) -> float:
    """Return how long processes get to end. In an allocation, the node runner may have written down another time by now."""
    told = (read_json(os.path.join(own, "launch.json")) or {}).get("stop_grace") if own is not None else None
    return float(told) if isinstance(told, (int, float)) else launch.stop_grace


def value_of(data: Any) -> Value:
    """Return a value of the plan: text, or a slot."""
    return Slot(str(data["slot"])) if isinstance(data, dict) else str(data)


def pairs_of(data: Iterable[Any]) -> Sequence[Tuple[str, Value]]:
    """Return variables with their values."""
    return tuple((str(name), value_of(value)) for name, value in data)


def fill(value: Value, slots: Dict[str, str]) -> str:
    """Return a value of the plan: text as it is, a slot filled."""
    return slots[value.slot] if isinstance(value, Slot) else value
