"""PaddlePaddle: one `paddle.distributed.launch` per node, with a plain master; in mode `ps` role processes without it.

Its launchers do not tell each other of failures, and a node that comes back to a plain master is counted twice (the
master keeps the key of the dead one). So each generation is a fresh set of launchers at a fresh master port, which all
start and end together.

With an etcd its launchers regroup by themselves: one that fails starts its processes again, one that is gone is left out
after the time to live of its key (10 s), one that comes is taken in. Then a generation only says which nodes there are.

Its launcher of mode `ps` never ends (it waits for servers, which serve for ever), gives a node at 10.0.0.1 the processes
of 10.0.0.10 too, and starts trainers before servers listen. So there each process is started by itself, with the variables
that `fleet.init` reads (paddle/distributed/fleet/base/role_maker.py): trainers as soon as all servers answer.

Flags and variables are those of paddle.distributed.launch 2.x and 3.x (`python -m paddle.distributed.launch --help`,
paddle/distributed/launch/context/args_envs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import LaunchSpec, Programs, RankSet, Role, interfaces, no_standby, served, standby
from jobctl.jobspec.frameworks.paddle_problems import RULES, installed
from jobctl.jobspec.frameworks.paddle_together import together
from jobctl.jobspec.frameworks.paddle_variables import DECIDED as _DECIDED
from jobctl.jobspec.frameworks.paddle_variables import ETCD_CLIENT, INSTEAD, OLD_PROGRAMS, STORE, usual
from jobctl.jobspec.launcher.system.network import etcd_master
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.plan.types import Need, Slot, Value
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.frameworks import VISIBLE

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.parts.parts import Ps

# NCCL and Gloo choose an interface by themselves, and choose wrong on hosts with several.
_INTERFACE_ENV = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")

# Paddle looks for `<TYPE>_VISIBLE_DEVICES` of its device plugins (paddle/distributed/launch/context/device.py).
_VISIBLE = {"npu": ("NPU_VISIBLE_DEVICES",)}

# An inherited variable wins over the flag of the same meaning, and MASTER_ADDR over what the launcher has agreed on.
_SCRUBBED = (
    "PADDLE_*",
    "POD_IP",
    "POD_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "DISTRIBUTED_TRAINER_ENDPOINTS",
    "TRAINING_ROLE",
    "FLAGS_START_PORT",
    "FLAGS_selected_*",
)
_SELECTED = frozenset(f"FLAGS_selected_{kind}s" for kind in ("gpu", "xpu", "npu"))

# A launcher whose link was out for longer than its key lives tries for ever to write it down again under the lease that is
# over (paddle/distributed/launch/controllers/master.py, `_heartbeat`), and all wait for all.
_LOST = r"requested lease not found"

# It waits for exactly as many as there were when it last looked, whoever comes or goes meanwhile (`sync_peers`, ibid.): if
# that is another number than the others', for ever. Else for no longer than another one takes to end its processes (30 s).
_STALL = (r"Waiting peer start", r"Run Pod", 40.0)

ELASTIC_TIMEOUT = 30.0  # seconds, Paddle's default

# It takes each regrouping for a restart, also those for nodes that come and leave (`Pod.deploy` in paddle/distributed/launch/
# job/pod.py). So jobctl's launcher counts its failures: see launcher/run/in_place.py.
_ALWAYS = str(2**31 - 1)

_IMPORTS = ("paddle",)
_LAUNCHER = "paddle.distributed.launch.main:launch"
_CHANGING = (
    *("PADDLE_MASTER", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINERS", "PADDLE_TRAINER_ENDPOINTS"),
    *("PADDLE_CURRENT_ENDPOINT", "PADDLE_CURRENT_IP", "PADDLE_PORT", "PADDLE_GLOBAL_RANK", "PADDLE_GLOBAL_SIZE"),
    *("PADDLE_NNODES", "PADDLE_GLOO_FS_PATH", "PADDLE_LOG_DIR", "PADDLE_BACKUP_ENV_PATH", "POD_IP", "POD_NAME"),
    *("COLLECTIVE_MASTER_IP", "PORT_RANGE"),
)
_MEETS = ("PADDLE_MASTER", "PADDLE_TRAINER_ID")
_BY_ITSELF = "a process that Paddle's launcher does not start has not been tried from standby"
_ELASTIC = "Paddle's elastic launcher goes on with processes of its own"

_PROGRAMS = Programs(sum="paddle_sum")


@dataclass(frozen=True, slots=True)
class Paddle:
    """paddle.distributed.launch, or role processes with parameter servers."""

    module: str = "paddle"
    rules: tuple[Rule, ...] = RULES
    programs: Programs = _PROGRAMS

    def roles(self, spec: Spec) -> tuple[Role, ...]:
        """Return trainers, and servers where there are any."""
        return served(spec)

    def start(self, spec: Spec, node: RankSet) -> LaunchSpec:
        """Return the launcher's command line, or, in mode `ps`, the variables of a role."""
        if spec.ps is not None:
            return _role(spec, spec.ps, node)
        if _is_old(spec):
            return _trainers(spec, node)
        elastic = node.etcd is not None
        return LaunchSpec(
            argv=_launch(spec, node),
            env=(
                ("PORT_RANGE", Slot("port_range")),
                *usual(spec, STORE),
                *(usual(spec, ETCD_CLIENT) if elastic else ()),
                *_own(spec),
            ),
            interface_env=interfaces(spec, *_INTERFACE_ENV),
            log_name="workerlog",
            rank_env=("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE"),
            scrub=_SCRUBBED,
            # Not its own log, envlog.N or backup_env.N.json: they hold the whole environment, with its secrets.
            kept=("endpoints.log",),
            regroups=elastic,
            rejoin=spec.recovery.max_restarts if elastic else None,
            lost=_LOST if elastic else "",
            stall=_STALL if elastic else None,
            apart=not elastic,  # the elastic one has to take its key out of etcd as it ends
            standby=no_standby(spec, _ELASTIC)
            if elastic
            else standby(spec, _IMPORTS, launcher=_LAUNCHER, changing=_CHANGING, meets=_MEETS),
        )

    def start_under_operator(self, spec: Spec, node: RankSet, operator: str) -> LaunchSpec:
        """Return what a pod runs: in mode `ps` the script, otherwise the launcher, which reads its place from variables."""
        # Nothing is scrubbed there, so the user's own variables arrive as they are.
        if spec.ps is not None:
            return LaunchSpec(together(spec, spec.ps, node), usual(spec, OLD_PROGRAMS), _INTERFACE_ENV, "workerlog")
        elastic = (*_elastic(spec, node.etcd), *usual(spec, ETCD_CLIENT)) if node.etcd else ()
        env = (*usual(spec, STORE), *elastic)
        # Without --devices it takes all that the pod has.
        processes = () if node.devices else ("--nproc_per_node", str(node.nproc))
        argv = (node.python, "-m", "paddle.distributed.launch", *processes, Slot("process_script"))
        return LaunchSpec(argv, env, interfaces(spec, *_INTERFACE_ENV), "workerlog")

    def visible_devices_env(self, kind: str) -> tuple[str, ...]:
        """Return the variables that Paddle's launcher checks `--devices` against, beside those of the device's library."""
        return _VISIBLE.get(kind, ())

    def reserved_env(self) -> frozenset[str]:
        """What its launcher sets, or would take for a flag."""
        return _DECIDED | {name for name in _SCRUBBED if "*" not in name} | _SELECTED

    def spec_keys_by_variable(self) -> Mapping[str, str]:
        """Return what says who takes part, where they meet, and what happens when one is gone."""
        return INSTEAD

    def image_requirements(self, spec: Spec) -> tuple[Need, ...]:
        """Return its etcd client, parameter servers, and its own test of an installation."""
        return installed(spec, _is_old(spec))


def _is_old(spec: Spec) -> bool:
    return spec.paddle is not None and spec.paddle.launcher == "legacy"


def _trainers(spec: Spec, node: RankSet) -> LaunchSpec:
    """Return how trainers of any Paddle start without its launcher: with the variables that all of its launchers set.

    Those of Paddle 1 and 2.0 to 2.2 have other options than today's, and others among themselves; their elastic manager
    (paddle/distributed/fleet/elastic, 2.2) starts nothing again that jobctl does not. So members are jobctl's decision
    here, with etcd as without, and the manager's variables only tell the program what it may read there.
    """
    return LaunchSpec(
        argv=(),
        env=(
            *_COLLECTIVE_ENV,
            *(() if node.devices else (("PADDLE_DISTRI_BACKEND", "gloo"),)),
            *(_old_elastic(spec) if node.etcd else ()),
            *usual(spec, STORE),
            *_own(spec),
        ),
        interface_env=interfaces(spec, *_INTERFACE_ENV),
        log_name="workerlog",
        rank_env=("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE"),
        scrub=_SCRUBBED,
        # Programs of the Fluid time know one port for all trainers, which have a host each.
        process_env=(*_PROCESS_ENV[:2], ("PADDLE_PSERVER_PORT", Slot("port")), *_selected(spec, node)),
        listens=True,
        one_port=node.nproc == 1,
        standby=no_standby(spec, _BY_ITSELF),
    )


_COLLECTIVE_ENV: tuple[tuple[str, Value], ...] = (
    ("PADDLE_TRAINER_ENDPOINTS", Slot("trainers")),
    ("PADDLE_TRAINERS_NUM", Slot("trainer_count")),
    ("POD_IP", Slot("address")),
    ("TRAINING_ROLE", "TRAINER"),
    # The names of the Fluid time.
    ("PADDLE_TRAINING_ROLE", "TRAINER"),
    ("PADDLE_TRAINERS", Slot("trainer_count")),
    # `fluid.Trainer` without it looks for servers.
    ("PADDLE_TRAINER_IPS", Slot("trainer_addresses")),
    ("PADDLE_CURRENT_IP", Slot("address")),
)


def _old_elastic(spec: Spec) -> tuple[tuple[str, Value], ...]:
    return (
        ("PADDLE_ELASTIC_SERVER", Slot("etcd_member")),
        ("PADDLE_ELASTIC_JOB_ID", Slot("etcd_job")),
        ("PADDLE_ELASTIC_NP", _count(spec)),
        ("PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL", "2" if spec.nodes.elastic else "1"),
    )


def _launch(spec: Spec, node: RankSet) -> tuple[Value, ...]:
    devices = ("--devices", ",".join(map(str, node.devices)))
    return (
        *(node.python, "-m", "paddle.distributed.launch"),
        *(_membership(spec) if node.etcd else _PLAIN),
        # Its own guess is what the host's name resolves to: 127.0.1.1 on many Debian machines.
        *("--host", Slot("address")),
        # On CPUs `--devices` ends in a ValueError, so there the number of processes is said instead.
        *(devices if node.devices else ("--nproc_per_node", str(node.nproc))),
        *("--log_dir", Slot("scratch")),
        Slot("process_script"),
    )


_PLAIN: tuple[Value, ...] = (
    *("--master", Slot("master"), "--nnodes", Slot("nnodes"), "--rank", Slot("node_rank")),
    *("--job_id", Slot("rdzv_id")),
)


def _count(spec: Spec) -> str:
    least, most = spec.nodes.min, spec.nodes.max
    return str(most) if least == most else f"{least}:{most}"


def _timeout(spec: Spec) -> float | None:
    return spec.paddle.elastic_timeout if spec.paddle else None


def _membership(spec: Spec) -> tuple[Value, ...]:
    timeout = _timeout(spec)
    return (
        *("--master", Slot("etcd_master"), "--nnodes", _count(spec)),
        *("--elastic_level", "1", "--max_restart", _ALWAYS),
        *("--elastic_timeout", str(ceil(ELASTIC_TIMEOUT if timeout is None else timeout))),
        # Otherwise ranks follow names that each launcher makes up when it starts.
        *("--sort_ip", "1", "--job_id", Slot("etcd_job")),
    )


def _elastic(spec: Spec, etcd: str) -> tuple[tuple[str, Value], ...]:
    """Return the variables that say what `_membership` says: the operator tells its elastic jobs too little."""
    timeout = _timeout(spec)
    return (
        ("PADDLE_MASTER", etcd_master(etcd)),
        ("PADDLE_NNODES", _count(spec)),
        ("PADDLE_JOB_ID", Slot("etcd_job")),
        ("PADDLE_ELASTIC_LEVEL", "1"),
        *((("PADDLE_ELASTIC_TIMEOUT", str(ceil(timeout))),) if timeout is not None else ()),
        ("PADDLE_MAX_RESTART", str(spec.recovery.max_restarts)),
        ("PADDLE_SORT_IP", "1"),
        ("POD_IP", Slot("address")),
    )


def _role(spec: Spec, ps: Ps, node: RankSet) -> LaunchSpec:
    server = node.role == "server"
    role = "PSERVER" if server else "TRAINER"
    return LaunchSpec(
        argv=(),
        env=(
            *_PS_ENV,
            *_GLOO[ps.gloo],
            *((name, role) for name in _ROLE_ENV),
            *usual(spec, OLD_PROGRAMS),
            *_own(spec),
        ),
        interface_env=_INTERFACE_ENV,
        log_name="serverlog" if server else "workerlog",
        rank_env=("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE"),
        scrub=_SCRUBBED,
        process_env=_PROCESS_ENV + (() if server else _alone_on_its_device(spec, node)),
        listens=True,
        one_port=server and _is_old(spec),
        after="" if server or ps.gloo == _ALL else "server",
        until="trainer" if server else "",
        # What synchronous trainers or servers hold of the model is lost with one of them; who has met through gloo has
        # met once and for all.
        rejoin=None if server or ps.sync or ps.gloo else spec.recovery.max_restarts,
        standby=no_standby(spec, _BY_ITSELF),
    )


_ROLE_ENV = ("TRAINING_ROLE", "PADDLE_TRAINING_ROLE", "PADDLE_ROLE")
_PS_ENV: tuple[tuple[str, Value], ...] = (
    ("PADDLE_PSERVERS_IP_PORT_LIST", Slot("servers")),
    ("PADDLE_TRAINER_ENDPOINTS", Slot("trainers")),
    ("PADDLE_TRAINERS_NUM", Slot("trainer_count")),
    ("POD_IP", Slot("address")),
    # The names of the Fluid time, which knows one port for all servers: see `one_port` in `_role`.
    ("PADDLE_TRAINERS", Slot("trainer_count")),
    ("PADDLE_PSERVER_IPS", Slot("server_addresses")),
    ("PADDLE_CURRENT_IP", Slot("address")),
)
# Through files: with a rendezvous by HTTP server 0 never opens the port that trainers wait for (3.0.0).
_FILES: tuple[tuple[str, Value], ...] = (
    ("PADDLE_GLOO_RENDEZVOUS", "2"),
    ("PADDLE_GLOO_FS_PATH", Slot("shared_scratch")),
)
_GLOO: tuple[tuple[tuple[str, Value], ...], ...] = (
    (("PADDLE_WITH_GLOO", "0"),),
    (("PADDLE_WITH_GLOO", "1"), *_FILES),
    (("PADDLE_WITH_GLOO", "2"), *_FILES),
)
_ALL = 2  # servers too: they wait for trainers, which can therefore not wait for them
_PROCESS_ENV: tuple[tuple[str, Value], ...] = (
    ("PADDLE_PORT", Slot("port")),
    ("PADDLE_CURRENT_ENDPOINT", Slot("endpoint")),
    ("PADDLE_PSERVER_PORT", Slot("server_port")),
)


def _selected(spec: Spec, node: RankSet) -> tuple[tuple[str, Value], ...]:
    # Trainer i takes the i-th device that the node sees. To a Paddle that was built for DCUs they are GPUs.
    kind = "gpu" if spec.devices.kind == "dcu" else spec.devices.kind
    return ((f"FLAGS_selected_{kind}s", Slot("local_rank")),) if node.devices else ()


def _alone_on_its_device(spec: Spec, node: RankSet) -> tuple[tuple[str, Value], ...]:
    # As its launcher does in mode `ps` (`start_pod_worker` in paddle/distributed/fleet/launch_utils.py): programs of that
    # kind take the first device that they see.
    kind = spec.devices.kind
    visible = tuple((name, Slot("device")) for name in VISIBLE.get(kind, ()))
    return (*visible, (f"FLAGS_selected_{kind}s", "0")) if node.devices else ()


def _own(spec: Spec) -> tuple[tuple[str, Value], ...]:
    """Return the variables of the spec that are scrubbed with the inherited ones although they are the user's own."""
    mine = sorted((name, value) for name, value in spec.env.items() if name.startswith("PADDLE_"))
    return tuple((name, value) for name, value in mine if name not in _DECIDED)


FRAMEWORK = Paddle()
