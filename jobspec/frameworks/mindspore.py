"""MindSpore: a dynamic cluster of one scheduler and one worker per device, each process started by the shared launcher.

After a worker is gone, the others' sockets and sequence numbers belong to a cluster that no longer is (2.10: a worker
that registers again fails in its first collective). So a failure restarts all workers together, in a new generation with
a scheduler at a new port. A scheduler that dies alone is started again at its port, and workers train on.

Launchers see which processes live, so MindSpore's own heartbeats must end nobody (2.10). A worker that ends after training
in PyNative mode does not unregister, and after MS_NODE_TIMEOUT the scheduler has the others kill themselves: it is a year,
unless somebody asks for less (`node_timeout`). Workers without a scheduler kill themselves after MS_HEARTBEAT_RETRY_TIMEOUT.
MS_DISABLE_HEARTBEAT=1 is no way out: a worker then closes the connection whose first reply its other thread still reads, and
one start in seven of two workers ended in SIGSEGV. MindSpore's own recovery needs the times that it has.

MindSpore up to 2.5 can take a worker in again on GPUs (MS_ENABLE_RECOVERY, `recovery: native`): the cluster's state is in files,
and a process of a known id is refused for 30 s (https://www.mindspore.cn/docs/en/r2.4.0/model_train/parallel/disaster_recover.html).

msrun (`launcher: msrun`, mindspore/parallel/cluster of 2.10) starts workers, and a scheduler wherever the master's address is the
host's own. The latter is left out, as jobctl's has a port and a node of its own, and comes back alone. msrun knows no restarts.
A user's command that is run once per node is such a launcher itself, and gets neither roles nor a scheduler.

Variables are those of https://www.mindspore.cn/tutorials/en/master/parallel/dynamic_cluster.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import TRAINERS_ONLY, LaunchSpec, Programs, RankSet, Role, no_standby, standby
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.plan.types import Need, Slot, Value
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.parts.frameworks import MindsporeOptions

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec

FOR_EVER = str(365 * 24 * 3600)  # seconds; what a negative number means is not the same in each version

SMALL = 256  # workers; of more than these the scheduler would get too many heartbeats
_INTERVAL = ("MS_RETRY_INTERVAL_LOWER", "MS_RETRY_INTERVAL_UPPER")  # seconds, of which it takes any number between

GIVEN_UP = 30.0  # seconds after which the scheduler of MindSpore 2.5 and earlier takes a worker for lost, and takes it in again

_INTERFACE_ENV = {"gpu": ("NCCL_SOCKET_IFNAME",), "npu": ("HCCL_SOCKET_IFNAME",)}
_ADDRESS_ENV = {"npu": ("HCCL_IF_IP",)}

# What jobctl decides; inherited values would put a process into another cluster, or another place in this one.
_DECIDED = (
    *("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SERVER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_IP"),
    *("MS_ENABLE_RECOVERY", "MS_RECOVERY_PATH", "RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE", "DEVICE_ID"),
)
_CHANGING = (
    *("MS_NODE_ID", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_IP", "MS_WORKER_NUM", "RANK_ID", "RANK_SIZE"),
)

_INSTEAD = {
    "MS_ENABLE_RECOVERY": "`mindspore: {recovery: native}`",
    "MS_RECOVERY_PATH": "`checkpoint`",
    "MS_NODE_TIMEOUT": "`mindspore.node_timeout`",
    "MS_TOPO_TIMEOUT": "`rendezvous.timeout`",
    "MS_WORKER_NUM": "`nodes`, with `devices`,",
    "MS_SCHED_HOST": "the hosts file",
    "MS_SCHED_PORT": "`rendezvous.port`",
    "MS_WORKER_IP": "`addr=` in the hosts file",
    "HCCL_IF_IP": "`addr=` in the hosts file",
    "RANK_SIZE": "`nodes`, with `devices`,",
    "DEVICE_ID": "`devices`",
}

_MSRUN = "msrun starts its processes in a way of its own"

_NATIVE = Need(
    "native-recovery-gone",
    """import importlib.metadata, sys
found = [d.version for d in importlib.metadata.distributions() if (d.metadata["Name"] or "").lower().startswith("mindspore")]
if found and all(tuple(map(int, v.split(".")[:2])) > (2, 5) for v in found): sys.exit("MindSpore %s has no recovery of its own" % found[0])""",
    "take MindSpore 2.5 or earlier, or leave `mindspore.recovery` out",
)


_TARGETS = {"gpu": "GPU", "npu": "Ascend"}


def _run_check(target: str) -> Need:
    # It prints what went wrong, and ends well.
    return Need(
        "framework-broken",
        f"""import contextlib, io, sys, mindspore
said = io.StringIO()
mindspore.set_context(device_target={target!r})
with contextlib.redirect_stdout(said): mindspore.run_check()
if "successfully" not in said.getvalue(): sys.exit(" ".join(said.getvalue().split())[-300:])""",
        "`mindspore.run_check()` fails: does MindSpore fit the devices and their driver?",
        deep=True,
    )


_PROGRAMS = Programs(sum="mindspore_sum")


@dataclass(frozen=True, slots=True)
class MindSpore:
    """A scheduler beside the first node, and the workers."""

    module: str = "mindspore"
    rules: tuple[Rule, ...] = ()
    programs: Programs = _PROGRAMS

    def roles(self, spec: Spec) -> tuple[Role, ...]:
        """Return the workers, and the scheduler, which needs no device."""
        return TRAINERS_ONLY if spec.per == "node" else (*TRAINERS_ONLY, Role("scheduler", 1, anywhere=True))

    def start(self, spec: Spec, node: RankSet) -> LaunchSpec:
        """Return the variables of a worker or of the scheduler; both run the same script."""
        scheduler = node.role == "scheduler"
        options = spec.mindspore or MindsporeOptions()
        native, msrun = options.recovery == "native", options.launcher == "msrun" and not scheduler
        interface_env = _INTERFACE_ENV.get(spec.devices.kind, ())
        asked = (("MS_NODE_TIMEOUT", _seconds(options.node_timeout)),) if options.node_timeout is not None else ()
        if spec.per == "node":
            return LaunchSpec((), asked, interface_env, "workerlog", scrub=_DECIDED)
        patience = _seconds(spec.rendezvous.timeout)
        env: tuple[tuple[str, Value], ...] = (
            ("MS_ROLE", "MS_SCHED" if scheduler else "MS_WORKER"),
            ("MS_WORKER_NUM", Slot("trainer_count")),
            ("MS_SCHED_HOST", Slot("scheduler_address")),
            ("MS_SCHED_PORT", Slot("scheduler_port")),
            # One that is started again waits in vain for workers that do not notice, or have ended well.
            ("MS_TOPO_TIMEOUT", FOR_EVER if scheduler and not native else patience),
            *((("MS_HEARTBEAT_RETRY_TIMEOUT", patience),) if "MS_HEARTBEAT_RETRY_TIMEOUT" not in spec.env else ()),
            *(asked or (() if native else (("MS_NODE_TIMEOUT", FOR_EVER),))),
            *(() if native or scheduler else _heartbeat(spec, node)),
            *((("MS_ENABLE_RECOVERY", "1"), ("MS_RECOVERY_PATH", Slot("shared_scratch"))) if native else ()),
        )
        return LaunchSpec(
            argv=_msrun(spec, node) if msrun else (),
            env=env if scheduler else (*env, *_worker(spec, node)),
            interface_env=interface_env,
            log_name="scheduler.log" if scheduler else "workerlog",
            rank_env=("RANK_ID", "DEVICE_ID") if msrun else ("RANK", "LOCAL_RANK"),
            scrub=_DECIDED + (_ADDRESS_ENV.get(spec.devices.kind, ()) if _names_interface(spec, node) else ()),
            process_env=(("MS_NODE_ID", "sched"),) if scheduler else _PROCESS_ENV,
            listens=scheduler,
            meets=scheduler,
            until="trainer" if scheduler else "",
            rejoin=spec.recovery.max_restarts if scheduler or native else None,
            rejoin_after=GIVEN_UP if native else 0.0,
            apart=msrun,
            elsewhere=("MS_ROLE", "MS_SCHED") if msrun else (),
            equal=msrun,
            standby=no_standby(spec, _MSRUN) if msrun else standby(spec, ("mindspore",), changing=_CHANGING),
        )

    def start_under_operator(self, spec: Spec, node: RankSet, operator: str) -> LaunchSpec:
        """No operator knows MindSpore; `validate` says so."""
        raise NotImplementedError(operator)

    def visible_devices_env(self, kind: str) -> tuple[str, ...]:
        """None: MindSpore uses the variables of the devices' own libraries."""
        return ()

    def reserved_env(self) -> frozenset[str]:
        """The identity of a process, and where it meets the others."""
        return frozenset(_DECIDED)

    def spec_keys_by_variable(self) -> Mapping[str, str]:
        """Return what says how many workers there are, where they meet, and how they recover."""
        return _INSTEAD

    def image_requirements(self, spec: Spec) -> tuple[Need, ...]:
        """Return its version, where that matters, and its own test of an installation."""
        native = spec.mindspore is not None and spec.mindspore.recovery == "native"
        return (*((_NATIVE,) if native else ()), _run_check(_TARGETS.get(spec.devices.kind, "CPU")))


# Ranks are explicit, so that a process is the same one in every generation.
_PROCESS_ENV: tuple[tuple[str, Value], ...] = (
    ("MS_NODE_ID", Slot("rank")),
    ("RANK_ID", Slot("rank")),
    ("RANK_SIZE", Slot("trainer_count")),
    ("DEVICE_ID", Slot("local_rank")),
)


def _seconds(duration: float) -> str:
    # Whole ones are what it reads; none at all would mean something else.
    return str(max(1, round(duration)))


def _msrun(spec: Spec, node: RankSet) -> tuple[Value, ...]:
    return (
        *(node.python, "-m", "mindspore.parallel.cluster.run"),
        # Each is 8 unless it is said; without its rank a node's workers all get RANK_ID 0, or none.
        *(
            "--worker_num",
            Slot("trainer_count"),
            "--local_worker_num",
            str(node.nproc),
            "--node_rank",
            Slot("node_rank"),
        ),
        *("--master_addr", Slot("scheduler_address"), "--master_port", Slot("scheduler_port")),
        *("--cluster_time_out", _seconds(spec.rendezvous.timeout)),
        # Without it msrun ends at once, well, and leaves its workers behind. `true` is an error.
        *("--join", "True"),
        # It opens its logs anew each time. What it says there is nothing: processes have logs of their own.
        *("--log_dir", Slot("scratch")),
        # It takes `python` unless told otherwise, which images need not have, and knows no other names.
        *("python3", Slot("process_script")),
    )


def _heartbeat(spec: Spec, node: RankSet) -> tuple[tuple[str, Value], ...]:
    """Return how often a worker asks the scheduler whether all workers have come: it learns that by its heartbeats alone.

    Each has the first one as soon as it is registered. All except the last to register wait for their second, which is
    3 to 5 s later in 2.10 (`ComputeGraphNode::Heartbeat` in mindspore/ccsrc/cluster/topology/compute_graph_node.cc; a
    later version takes half a second where there are no more than 256 workers, `SleepBasedOnScale`).
    """
    few = spec.nodes.max * node.nproc <= SMALL
    return tuple((name, "1") for name in _INTERVAL) if few and spec.env.keys().isdisjoint(_INTERVAL) else ()


def _worker(spec: Spec, node: RankSet) -> tuple[tuple[str, Value], ...]:
    # An address wins over the name of an interface.
    further = () if _names_interface(spec, node) else _ADDRESS_ENV.get(spec.devices.kind, ())
    return tuple((name, Slot("address")) for name in ("MS_WORKER_IP", *further))


def _names_interface(spec: Spec, node: RankSet) -> bool:
    names = _INTERFACE_ENV.get(spec.devices.kind, ())
    return node.interface is not None or not spec.env.keys().isdisjoint(names)


FRAMEWORK = MindSpore()
