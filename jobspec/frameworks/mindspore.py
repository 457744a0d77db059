"""MindSpore: a dynamic cluster of one scheduler and one worker per device, each process started by the shared launcher.

After a worker is gone, the others' sockets and sequence numbers belong to a cluster that no longer is (2.10: a worker
that registers again fails in its first collective). So a failure restarts all workers together, in a new generation with
a scheduler at a new port. A scheduler that dies alone is started again at its port: workers look for it for a while
(MS_HEARTBEAT_RETRY_TIMEOUT, in its sources: 20 s unless it is set) and train meanwhile.

Variables are those of https://www.mindspore.cn/tutorials/en/master/parallel/dynamic_cluster.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import Role, Seat, Start
from jobctl.jobspec.plan.types import Need, Slot, Value

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec

PATIENCE = "60"  # seconds that workers look for their scheduler: on a busy host its imports alone take ten

_INTERFACE_ENV = {"gpu": ("NCCL_SOCKET_IFNAME",), "npu": ("HCCL_SOCKET_IFNAME",)}

# What jobctl decides; inherited values would put a process into another cluster, or another place in this one.
_DECIDED = (
    *("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SERVER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_IP"),
    *("MS_ENABLE_RECOVERY", "MS_RECOVERY_PATH", "RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE", "DEVICE_ID"),
)


@dataclass(frozen=True, slots=True)
class MindSpore:
    """A scheduler beside the first node, and the workers."""

    module: str = "mindspore"

    def roles(self, spec: Spec) -> tuple[Role, ...]:
        """Return the workers, and the scheduler, which needs no device."""
        return (Role("trainer"), Role("scheduler", 1, anywhere=True))

    def start(self, spec: Spec, seat: Seat) -> Start:
        """Return the variables of a worker or of the scheduler; both run the same script."""
        scheduler = seat.role == "scheduler"
        timeout = spec.mindspore.node_timeout if spec.mindspore else None
        env: tuple[tuple[str, Value], ...] = (
            ("MS_ROLE", "MS_SCHED" if scheduler else "MS_WORKER"),
            ("MS_WORKER_NUM", Slot("trainer_count")),
            ("MS_SCHED_HOST", Slot("scheduler_address")),
            ("MS_SCHED_PORT", Slot("scheduler_port")),
            ("MS_TOPO_TIMEOUT", str(round(spec.rendezvous.timeout))),
            *((("MS_HEARTBEAT_RETRY_TIMEOUT", PATIENCE),) if "MS_HEARTBEAT_RETRY_TIMEOUT" not in spec.env else ()),
            *((("MS_NODE_TIMEOUT", str(round(timeout))),) if timeout else ()),
        )
        return Start(
            argv=(),
            env=env if scheduler else (*env, *_worker(spec)),
            interface_env=_INTERFACE_ENV.get(spec.devices.kind, ()),
            log_name="scheduler.log" if scheduler else "workerlog",
            scrub=_DECIDED,
            process_env=(("MS_NODE_ID", "sched"),) if scheduler else _PROCESS_ENV,
            listens=scheduler,
            until="trainer" if scheduler else "",
            rejoin=spec.recovery.max_restarts if scheduler else None,
        )

    def under(self, spec: Spec, seat: Seat, operator: str) -> Start:
        """No operator knows MindSpore; `validate` says so."""
        raise NotImplementedError(operator)

    def visible(self, kind: str) -> tuple[str, ...]:
        """None: MindSpore goes by the variables of the devices' own libraries."""
        return ()

    def decides(self) -> frozenset[str]:
        """Who a process is, and where it meets the others."""
        return frozenset(_DECIDED)

    def needs(self, spec: Spec) -> tuple[Need, ...]:
        """Nothing but the module."""
        return ()

    def unsupported(self, spec: Spec) -> str | None:
        """Return what this version cannot plan yet."""
        options = spec.mindspore
        if options is not None and options.launcher == "msrun":
            return "`mindspore.launcher: msrun`"
        return "`mindspore.recovery: native`" if options is not None and options.recovery == "native" else None


# Ranks are explicit, so that a process is the same one in every generation.
_PROCESS_ENV: tuple[tuple[str, Value], ...] = (
    ("MS_NODE_ID", Slot("rank")),
    ("RANK_ID", Slot("rank")),
    ("RANK_SIZE", Slot("trainer_count")),
    ("DEVICE_ID", Slot("local_rank")),
)


def _worker(spec: Spec) -> tuple[tuple[str, Value], ...]:
    # HCCL takes the first interface by name unless it is told.
    hccl: tuple[tuple[str, Value], ...] = (("HCCL_IF_IP", Slot("address")),) if spec.devices.kind == "npu" else ()
    return (("MS_WORKER_IP", Slot("address")), *hccl)


FRAMEWORK = MindSpore()
