"""What the planner asks of a framework.

All knowledge of how one framework is started and recovers lives in its one module. What the language knows of it is its entry in
`spec/frameworks.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from jobctl.jobspec.plan.types import Standby
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobctl.jobspec.plan.recovery import Rule
    from jobctl.jobspec.plan.types import Need, Value
    from jobctl.jobspec.spec.model import Spec


@dataclass(frozen=True, slots=True)
class Role:
    """What nodes of a job are for: `total` processes over all hosts, None for one on each device of every host.

    `anywhere`: also on hosts that name other roles, if none names this one.
    """

    name: str
    total: int | None = None
    anywhere: bool = False


TRAINERS_ONLY = (Role("trainer"),)  # the roles of a job whose nodes all do the same


@dataclass(frozen=True, slots=True)
class RankSet:
    """What a node is to start: `nproc` processes of one role with the interpreter `python`.

    `devices` are the indices of their devices as the node sees them: from 0 on in a container, which has no others.
    `etcd` is the first member of the job's etcd (host:port), if there is one: which of them answers, the launcher sees.
    `interface` is that of the network, where the spec or the hosts file names it.
    """

    python: str
    nproc: int
    devices: tuple[int, ...] = ()
    role: str = "trainer"
    etcd: str | None = None
    interface: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How one node's processes are started.

    `argv` is the framework's own launcher up to where the user's command follows; empty where the shared
    launcher starts the processes itself. `env` is what the framework needs beside what its launcher sets.
    `interface_env` are the variables that name the network interface. `equal`: the framework's launcher takes it that all
    nodes have as many processes. The others are as in `plan.types.Launch`.
    """

    argv: tuple[Value, ...]
    env: tuple[tuple[str, Value], ...]
    interface_env: tuple[str, ...]
    log_name: str
    rank_env: tuple[str, str] = ("RANK", "LOCAL_RANK")
    scrub: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    process_env: tuple[tuple[str, Value], ...] = ()
    listens: bool = False
    after: str = ""
    until: str = ""
    regroups: bool = False
    rejoin: int | None = None
    lost: str = ""
    stall: tuple[str, str, float] | None = None
    rejoin_after: float = 0.0
    apart: bool = False
    meets: bool = False
    one_port: bool = False
    elsewhere: tuple[str, ...] = ()
    equal: bool = False
    standby: Standby | None = None


@dataclass(frozen=True, slots=True)
class Programs:
    """Names of files in `programs`: `devices` measures those of a host, `sum` adds up over all ranks; None: there is none.

    Many images of other frameworks have PyTorch, too, and devices are as fast with it.
    """

    devices: str = "torch_devices"
    sum: str | None = None


class Framework(Protocol):
    """Pure functions from a node's place in the plan to what starts it."""

    @property
    def module(self) -> str:
        """The Python module that the interpreter must be able to import."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What is known of failures that the framework tells of in its own words."""

    @property
    def programs(self) -> Programs:
        """The programs by which `check --fitness` measures in the framework's own words."""

    def roles(self, spec: Spec) -> tuple[Role, ...]:
        """Return the roles of a job; nodes are numbered in their order."""

    def start(self, spec: Spec, node: RankSet) -> LaunchSpec:
        """Return how a node starts its processes."""

    def start_under_operator(self, spec: Spec, node: RankSet, operator: str) -> LaunchSpec:
        """Return how a pod starts its processes where an operator of Kubernetes, and not our launcher, tells it its place.

        Its slots are filled by what the operator puts into each pod (render/operators.py).
        """

    def visible_devices_env(self, kind: str) -> tuple[str, ...]:
        """Return the variables by which this framework alone tells which devices of a kind a process sees."""

    def reserved_env(self) -> frozenset[str]:
        """Return the variables that a spec's `env` cannot set: they are each process's own."""

    def spec_keys_by_variable(self) -> Mapping[str, str]:
        """Return what of a spec or a hosts file says what a variable says that is decided."""

    def image_requirements(self, spec: Spec) -> tuple[Need, ...]:
        """Return what `check` looks for in the image, beside the module itself."""


def served(spec: Spec) -> tuple[Role, ...]:
    """Return the roles of a job whose trainers may have parameter servers."""
    return (Role("trainer", spec.ps.trainers), Role("server", spec.ps.servers)) if spec.ps else TRAINERS_ONLY


def interfaces(spec: Spec, *names: str) -> tuple[str, ...]:
    """Return the variables that name the interface: `names`, and on NPUs that of Huawei's collectives.

    Without it HCCL takes the first interface by name.
    """
    return (*names, "HCCL_SOCKET_IFNAME") if spec.devices.kind == "npu" else names


def standby(
    spec: Spec,
    *groups: tuple[str, ...],
    launcher: str = "",
    changing: tuple[str, ...] = (),
    meets: tuple[str, ...] = (),
) -> Standby | None:
    """Return what waits for the next generation; None where the user's command starts who knows what.

    The first of `groups` are the modules of the framework, the further ones what else it imports unless the spec says that.
    `changing` are its variables that differ from one generation to the next: nothing may read them while it is imported.
    `meets` are those in which its launcher tells a process where rank 0 listens, and which rank the process is.
    """
    if spec.script is None and spec.module is None:
        return None
    wanted = spec.recovery.standby
    if wanted is None:
        return Standby((), "", "`recovery.standby` is off")
    further = groups[1:] if wanted.modules is None else tuple((name,) for name in wanted.modules)
    return Standby((groups[0], *further), launcher, changing=changing, meets=meets)


def no_standby(spec: Spec, why: str) -> Standby | None:
    """Return that nothing waits, and why."""
    wanted = standby(spec, ())
    return wanted if wanted is None or wanted.off else Standby((), "", why)


def framework(name: str) -> Framework:
    """Return the framework called `name` (a value of the spec's key `framework`), which is what its module is called."""
    return cast("Framework", import_module(f"jobctl.jobspec.frameworks.{name}").FRAMEWORK)
