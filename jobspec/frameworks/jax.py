"""JAX: one process per device, each started by the shared launcher; they meet at the coordination service of rank 0.

`jax.distributed.initialize()` (jax 0.10, jax/_src/distributed.py) reads JAX_COORDINATOR_ADDRESS and
JAX_LOCAL_DEVICE_IDS by itself. The number of processes and the rank have no variable of JAX's own: a script passes
JAX_NUM_PROCESSES and JAX_PROCESS_ID, which are the names of Kubeflow's, too. With all four JAX asks neither Slurm,
Open MPI nor Kubernetes, whose numbers are others.

JAX cannot go on without one of its processes, so a failure restarts all of them, in a new generation at a new port.
Those that are left fail in their next collective, or are aborted (SIGABRT) when the coordination service is gone.

The preemption service takes SIGTERM for a notice, and the process goes on: a user who wants that sets the variable in
`env`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import TRAINERS_ONLY, LaunchSpec, Programs, RankSet, Role, standby
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.plan.types import Need, Slot, Value
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec

# Inherited, these put the coordinator at another port than the one at which the others look for it.
_SCRUBBED = ("JAX_COORDINATOR_BIND_ADDRESS", "JAX_COORDINATOR_PORT")
_CHANGING = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_DECIDED = frozenset(
    (
        *(*_SCRUBBED, *_CHANGING, "JAX_LOCAL_DEVICE_IDS"),
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    )
)

_INSTEAD = {
    "JAX_COORDINATOR_ADDRESS": "`rendezvous.port`, with the hosts file,",
    "JAX_COORDINATOR_PORT": "`rendezvous.port`",
    "JAX_NUM_PROCESSES": "`nodes`, with `devices`,",
    "JAX_LOCAL_DEVICE_IDS": "`devices`",
    "WORLD_SIZE": "`nodes`, with `devices`,",
    "LOCAL_WORLD_SIZE": "`devices`",
}

# By kind of devices. Unless JAX is told which platforms it must have, it trains on the CPU where a GPU does not work, and takes
# any GPU that it sees.
_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu"}
_INTERFACE_ENV = {"gpu": ("NCCL_SOCKET_IFNAME",)}

_RULES = (
    # Somebody took the coordinator's port between its choice and its use. The next generation has another.
    Rule(r"Failed to start RPC server", None, "restart"),
)


def _run_check(kind: str) -> Need:
    return Need(
        "framework-broken",
        f"""import sys, jax
try:
    with jax.default_device(jax.devices({kind!r})[0]):
        x = jax.numpy.ones((8, 8))
        if float((x @ x).sum()) != 512: raise ValueError("8 x 8 ones times themselves is wrong")
except Exception as error: sys.exit("JAX %s cannot compute on `{kind}`: %s" % (jax.__version__, " ".join(str(error).split())[:300]))""",
        "is JAX installed for the devices of the job (`jax[cuda13]` for GPUs), and does it fit their driver?",
        deep=True,
    )


_PROGRAMS = Programs()


@dataclass(frozen=True, slots=True)
class Jax:
    """Processes that are all alike."""

    module: str = "jax"
    rules: tuple[Rule, ...] = _RULES
    programs: Programs = _PROGRAMS

    def roles(self, spec: Spec) -> tuple[Role, ...]:
        """Return trainers."""
        return TRAINERS_ONLY

    def start(self, spec: Spec, node: RankSet) -> LaunchSpec:
        """Return the variables of a process: one on each device, or, with `per: node`, one on all devices of the node."""
        own: Value = Slot("local_rank")
        if spec.per == "node":
            own = ",".join(str(number) for number in range(len(node.devices) or 1))
        usual = (("JAX_PLATFORMS", _PLATFORMS.get(spec.devices.kind, "")), ("JAX_ENABLE_PREEMPTION_SERVICE", "false"))
        return LaunchSpec(
            argv=(),
            env=(
                ("JAX_COORDINATOR_ADDRESS", Slot("master")),
                ("JAX_NUM_PROCESSES", Slot("world_size")),
                ("WORLD_SIZE", Slot("world_size")),
                ("LOCAL_WORLD_SIZE", str(node.nproc)),
                *((name, value) for name, value in usual if name not in spec.env),
            ),
            interface_env=_INTERFACE_ENV.get(spec.devices.kind, ()),
            log_name="workerlog",
            scrub=_SCRUBBED,
            process_env=(("JAX_PROCESS_ID", Slot("rank")), ("JAX_LOCAL_DEVICE_IDS", own)),
            # It looks for devices at their first use only (jax/_src/xla_bridge.py, `backends`).
            standby=standby(spec, ("jax",), changing=_CHANGING),
        )

    def start_under_operator(self, spec: Spec, node: RankSet, operator: str) -> LaunchSpec:
        """No operator starts a process on each device; `validate` says so."""
        raise NotImplementedError(operator)

    def visible_devices_env(self, kind: str) -> tuple[str, ...]:
        """None: JAX uses the variables of the devices' own libraries."""
        return ()

    def reserved_env(self) -> frozenset[str]:
        """The place of each process, as its variables say it."""
        return _DECIDED

    def spec_keys_by_variable(self) -> Mapping[str, str]:
        """Return what says how many processes there are, where they meet, and what they run on."""
        return _INSTEAD

    def image_requirements(self, spec: Spec) -> tuple[Need, ...]:
        """Return a test of an installation; JAX has none of its own."""
        return (_run_check("gpu" if spec.devices.kind == "gpu" else "cpu"),)


FRAMEWORK = Jax()
