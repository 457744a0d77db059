"""One node of a job: its container, and what the launcher in it does. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.frameworks.base import LaunchSpec, RankSet
from jobctl.jobspec.plan import types
from jobctl.jobspec.plan.generation import port_of
from jobctl.jobspec.planner.context import Context, Request
from jobctl.jobspec.planner.devices import device_labels, devices_of, visible_names
from jobctl.jobspec.planner.etcd import certificates
from jobctl.jobspec.planner.inputs import InputsLabel, inputs_label, inputs_of_job
from jobctl.jobspec.planner.kubernetes import has_operator
from jobctl.jobspec.planner.memory import shared_memory
from jobctl.jobspec.planner.placement import Task
from jobctl.jobspec.planner.slurm import TASK_VARIABLES, runs_on_nodes
from jobctl.jobspec.spec.checkpoint_volume import is_in_a_volume

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec

# What a framework says of a start and the launcher reads under the same name, without what the spec's `env` changes.
_OF_START = {field.name for field in fields(LaunchSpec)} & {field.name for field in fields(types.Launch)}
_OF_START -= {"env", "interface_env"}


class NodeBuilder:
    """Builds the nodes of one job. `container` and `launch` are what all nodes have alike; `starts` is how each kind starts.

    `homes` are the hosts of its managed etcd.
    """

    def __init__(
        self,
        request: Request,
        etcd: types.Etcd | None,
        cluster: types.ClusterOptions | None,
        homes: Sequence[types.HostRef] = (),
    ) -> None:
        self.request, self.etcd = request, etcd
        self.operator = cluster.operator if cluster is not None and has_operator(cluster) else None
        self.container = _container(request, etcd)
        self.launch = _launch(request, etcd, self.container.python)
        if (cluster is not None and self.operator is None) or request.context.traits.in_allocation:
            self.launch = replace(self.launch, peer_port=port_of(request.spec.name, 0))
        self.scrub = TASK_VARIABLES if request.context.traits.in_allocation else ()
        self.visible = visible_names(request)
        self.inputs = inputs_of_job(request.spec, request.context, homes)
        self.starts: dict[RankSet, LaunchSpec] = {}

    def node(self, index: int, task: Task) -> types.Node:
        """Return node `index`, which does `task`."""
        devices = devices_of(self.request.spec, task)
        container, launch = self._container_of(index, task, devices), self._launch_of(index, task, devices)
        if self.etcd is None and launch.rejoin_after:  # the supervisor starts these again, and no sooner than that
            container = replace(container, restart="no")
        return types.Node(index, task.role, task.place.host, container, launch)

    def _container_of(self, index: int, task: Task, devices: types.Devices) -> types.Container:
        job, context = self.request.spec.name, self.request.context
        labels = (
            ("jobctl.job", job),
            ("jobctl.node", str(index)),
            ("jobctl.role", task.role),
            ("jobctl.owner", context.owner),
            *(("jobctl.devices", ",".join(f"{devices.kind}:{i}" for i in ids)) for ids in [devices.ids] if ids),
            ("jobctl.version", context.version),
            self._inputs_of(index, task, devices),
        )
        name, hostname = f"jobctl-{job}-{index}", f"{job}-{index}"
        return replace(self.container, name=name, hostname=hostname, labels=labels, devices=devices)

    def _inputs_of(self, index: int, task: Task, devices: types.Devices) -> InputsLabel:
        host, image = task.place.host, self.container.image
        return inputs_label(
            self.inputs, index, task.role, task.nproc, host.name, host.address, devices.ids, task.place.interface, image
        )

    def _launch_of(self, index: int, task: Task, devices: types.Devices) -> types.Launch:
        spec, place = self.request.spec, task.place
        labels = device_labels(spec, devices, task.nproc)
        per_node = spec.command is not None and spec.per == "node"
        nproc = 1 if per_node else len(labels)
        interface = self.launch.interface or (None if self._local else place.interface)
        etcd = self.etcd.endpoints[0] if self.etcd is not None else None
        ranks = RankSet(self.container.python, nproc, self._seen(devices), task.role, etcd, interface)
        start = self._start(ranks)
        visible = tuple((name, ",".join(map(str, devices.ids or ()))) for name in self.visible)
        interface_env = tuple(name for name in start.interface_env if name not in spec.env)
        # One that the user named wins over a variable of the image; one that the launcher finds does not.
        named = tuple((name, interface) for name in interface_env if interface)
        said: dict[str, Any] = {name: getattr(start, name) for name in _OF_START}
        return replace(
            self.launch,
            node=index,
            host=place.host.name,
            role=task.role,
            nproc=nproc,
            start=() if per_node else start.argv,
            env=(*named, *self.launch.env, *start.env, *(_per_node_env(len(labels)) if per_node else ()), *visible),
            devices=labels[:1] if per_node else labels,
            interface=interface,
            interface_env=interface_env,
            rejoin_within=spec.recovery.window if start.rejoin is not None else None,
            **{**said, "scrub": (*start.scrub, *self.scrub)},
        )

    @property
    def _local(self) -> bool:
        return self.request.context.traits.is_here

    def _start(self, ranks: RankSet) -> LaunchSpec:
        if ranks not in self.starts:
            known, spec, operator = self.request.framework, self.request.spec, self.operator
            self.starts[ranks] = (
                known.start_under_operator(spec, ranks, operator) if operator else known.start(spec, ranks)
            )
        return self.starts[ranks]

    def _seen(self, devices: types.Devices) -> tuple[int, ...]:
        """Return the indices of a node's devices as its processes see them: a container has no others."""
        ids = devices.ids or ()
        return ids if self._local else tuple(range(len(ids)))


def _container(request: Request, etcd: types.Etcd | None) -> types.Container:
    """Return what the containers of all nodes have alike."""
    spec, options, resources = request.spec, request.spec.container, request.spec.resources
    traits = request.context.traits
    local = traits.is_here
    bare = local or runs_on_nodes(spec, request.context)
    read = certificates(spec) if etcd is not None else ()
    return types.Container(
        name="",
        image="" if bare else request.context.image or spec.image or "",
        pull="never" if request.context.image else spec.pull,  # no registry has what is built
        hostname="",
        python="python3" if local else options.python,
        user=options.user,
        runtime=options.runtime,
        env=tuple(sorted(spec.env.items())),
        labels=(),
        mounts=() if bare else (*_mounts(spec, traits.in_cluster), *read),
        devices=types.Devices("cpu", ()),
        extra_devices=options.devices,
        cap_add=tuple(dict.fromkeys(options.cap_add)),
        shm_size=shared_memory(spec, traits.takes_hosts or traits.in_allocation),
        memory=resources.memory,
        cpus=resources.cpus,
        ulimits=_ulimits(spec),
        options=options.options,
        # The engine kills later than the launcher, so that the launcher's last report is not lost.
        stop_grace=spec.stop_grace_period + 5,
        # Launchers that engines start again rejoin the job, see docs/recovery.md.
        restart="unless-stopped" if traits.takes_hosts else "no",
    )


def _launch(request: Request, etcd: types.Etcd | None, python: str) -> types.Launch:
    """Return what the launchers of all nodes do alike."""
    spec, context = request.spec, request.context
    return types.Launch(
        node=0,
        host="",
        role="",
        nproc=0,
        start=(),
        command=_command(spec, python),
        env=_launch_env(spec),
        log_name="",
        devices=(),
        setup=spec.setup,
        secrets=tuple(secret.name for secret in spec.secrets),
        workdir=_workdir(spec, context),
        interface=None if context.traits.is_here else spec.network.interface,
        interface_env=(),
        stop_grace=spec.stop_grace_period,
        hang_timeout=spec.recovery.hang_timeout,
        etcd=etcd,
        tells=context.traits.is_supervised and any(one.from_hosts for one in spec.notify or ()),
    )


def _launch_env(spec: Spec) -> tuple[tuple[str, types.Value], ...]:
    return (("JOBCTL_CHECKPOINT_KEEP", str(spec.checkpoint.keep)),) if spec.checkpoint else ()


def _per_node_env(nproc: int) -> tuple[tuple[str, types.Value], ...]:
    return (
        ("MASTER_ADDR", types.Slot("master_addr")),
        ("MASTER_PORT", types.Slot("master_port")),
        ("NODE_RANK", types.Slot("node_rank")),
        ("NNODES", types.Slot("nnodes")),
        ("NPROC_PER_NODE", str(nproc)),
    )


def _command(spec: Spec, python: str) -> tuple[str, ...]:
    # -u: a log that lags behind by a buffer is useless when a process is killed (torchrun and paddle do so too).
    if spec.script is not None:
        return (python, "-u", spec.script, *spec.args)
    if spec.module is not None:
        return (python, "-u", "-m", spec.module, *spec.args)
    return spec.command or ()


def _workdir(spec: Spec, context: Context) -> str | None:
    if context.traits.is_here:
        return os.path.normpath(os.path.join(context.directory, spec.code.source if spec.code else "."))
    if runs_on_nodes(spec, context):
        return None  # where the code's version lies is known when it is packed
    return spec.code.target if spec.code else None


def _mounts(spec: Spec, in_cluster: bool) -> tuple[types.Mount, ...]:
    volumes = tuple(types.Mount(v.kind, v.source or "", v.target, v.read_only) for v in spec.volumes)
    if spec.checkpoint is None or (in_cluster and is_in_a_volume(spec)):
        return volumes
    return (*volumes, types.Mount("bind", spec.checkpoint.dir, spec.checkpoint.dir))


def _ulimits(spec: Spec) -> tuple[types.Ulimit, ...]:
    limits = {name: types.Ulimit(name, u.soft, u.hard) for name, u in spec.resources.ulimits.items()}
    # Drivers pin memory and RDMA registers it: at Docker's default of 64 KiB that fails.
    if spec.devices.kind != "cpu" or any(path.startswith("/dev/infiniband") for path in spec.container.devices):
        limits.setdefault("memlock", types.Ulimit("memlock", -1, -1, optional=True))
    # A standby imports when nobody else runs, and must leave that policy again; the host raises this where it may.
    if spec.recovery.standby is not None and spec.command is None:
        limits.setdefault("nice", types.Ulimit("nice", 0, 0, optional=True))
    return tuple(limits[name] for name in sorted(limits))
