"""Spec and hosts to Plan: every decision about a job that can be made before it runs.

Pure and deterministic. The placement (node to host) is an argument: the order of the hosts file for a new job,
otherwise what was observed, so that a node that moved to a spare is not moved back.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from jobctl.jobspec.frameworks.base import ALIKE, Framework, Role, Seat, Start, framework
from jobctl.jobspec.plan import types
from jobctl.jobspec.plan.cluster import cluster_of, has_operator, pod, uses_etcd
from jobctl.jobspec.plan.context import Context, PlanError, local_hosts
from jobctl.jobspec.plan.etcd import certificates, etcd_members, etcd_of
from jobctl.jobspec.plan.generation import port_of
from jobctl.jobspec.plan.memory import shared_memory

if TYPE_CHECKING:
    from jobctl.jobspec.spec.hosts import Host
    from jobctl.jobspec.spec.model import Spec


@dataclass(frozen=True, slots=True)
class _Place:
    """Room for one node on a host, with the devices that are its own (None: not known), and the roles it takes (all, if none)."""

    host: types.HostRef
    slots: tuple[int, ...] | None
    interface: str | None
    roles: tuple[str, ...] = ()

    def takes(self, role: str) -> bool:
        return not self.roles or role in self.roles


@dataclass(frozen=True, slots=True)
class _Task:
    """One node: what it does where, in `nproc` processes (None: one on each device)."""

    role: str
    place: _Place
    nproc: int | None = None


def planner(
    spec: Spec,
    hosts: Sequence[Host],
    placement: Mapping[int, str] | None,
    context: Context,
    devices: Mapping[str, int] | None = None,
    count: int | None = None,
    services: Mapping[str, str] | None = None,
) -> types.Plan:
    """Return the plan of `spec` on `hosts` (none for target `local`).

    `placement` maps node numbers to host names where that is already decided. `devices` is how many devices of the
    spec's kind were counted on hosts, by their names (target `local`: on `localhost`); None if nobody has counted.
    `count` is how many nodes of its range an elastic job gets; default as many as there is room for. `services` is
    `placement` for services, by name. Raises PlanError.
    """
    counts = devices or {}
    known = framework(spec.framework)
    cluster = cluster_of(spec) if context.target == "kubernetes" else None
    hosts = _equipped(hosts, counts)
    most = spec.nodes.max if count is None else _counted(spec, count)
    roles = known.roles(spec)
    if cluster is not None:
        tasks = _pods(spec, roles, most)
    else:
        local = context.target == "local"
        places = _local_places(most, counts.get("localhost")) if local else _places(spec, known, most, hosts, placement)
        tasks = _dealt(roles, places, hosts)
        if placement and roles != ALIKE:
            tasks = _moved(tasks, roles, hosts, placement)
    members = () if cluster is not None else etcd_members(spec, hosts, context, services or {})
    # Launchers in a cluster agree among themselves; an etcd is for a framework's own launchers there.
    unused = cluster is not None and not uses_etcd(cluster, spec)
    etcd = None if unused else etcd_of(spec, context, members)
    build = _Builder(spec, known, context, etcd, cluster)
    nodes = tuple(build.node(index, task) for index, task in enumerate(tasks))
    _refuse_unequal(nodes, build.starts)
    _refuse_neighbours(nodes)
    _refuse_unshared(spec, nodes)
    digest = sha256(spec.model_dump_json().encode()).hexdigest()
    # Ports come of it: the same example, run by two people on one machine, is two runs. A cluster has one, whoever applies it.
    whose = f"{context.owner}\n{context.directory}\n" if cluster is None else ""
    run = sha256(f"{whose}{digest}".encode()).hexdigest()[:8]
    return types.Plan(
        job=spec.name,
        framework=spec.framework,
        mode=spec.mode,
        target=context.target,
        owner=context.owner,
        run_id=f"{spec.name}-{run}",
        min_nodes=spec.nodes.min if roles == ALIKE else len(nodes),
        max_nodes=spec.nodes.max if roles == ALIKE else len(nodes),
        elastic=spec.nodes.min != spec.nodes.max,
        nodes=nodes,
        code=code_of(spec, context.directory) if spec.code else None,
        script=_script(spec, context),
        outputs=spec.outputs,
        checkpoint=_checkpoint(spec),
        rendezvous=types.Rendezvous(spec.rendezvous.port, spec.rendezvous.timeout),
        recovery=_recovery(spec, any(host.spare for host in hosts) and _may_move(spec)),
        stop_grace=spec.stop_grace_period,
        spec_hash=digest,
        services=members,
        cluster=cluster,
        needs=known.needs(spec),
        counted=() if context.target == "local" else tuple(sorted(counts.items())),
    )


def _refuse_unshared(spec: Spec, nodes: Sequence[types.Node]) -> None:
    shared = [name for node in nodes for name, value in node.launch.env if value == types.Slot("shared_scratch")]
    if shared and (spec.checkpoint is None or not spec.checkpoint.shared):
        raise PlanError(
            "no-shared-folder",
            f"`{shared[0]}` has to name a folder that all hosts see, and none is known",
            (spec.framework,),
            "add `checkpoint: /path/that/all/hosts/see`",
        )


def _refuse_unequal(nodes: Sequence[types.Node], starts: Mapping[Seat, Start]) -> None:
    launched = {seat.nproc for seat, start in starts.items() if start.equal}
    if len(launched) > 1:
        few, many = min(launched), max(launched)
        one, other = (next(n for n in nodes if n.launch.start and n.launch.nproc == count) for count in (few, many))
        raise PlanError(
            "unequal-nodes",
            f"the framework's launcher counts on as many processes on every node: {one.host.name} has {few}, "
            f"{other.host.name} {many}",
            ("devices",),
            f"say `devices: {{kind: …, count: {few}}}`, or leave the processes to jobctl",
        )


def _refuse_neighbours(nodes: Sequence[types.Node]) -> None:
    alone = [node for node in nodes if node.launch.one_port for _ in range(node.launch.nproc)]
    if len(alone) > len({node.host.address for node in alone}):
        raise PlanError(
            "too-many-servers",
            f"old programs know one port for all servers, so each of the {len(alone)} needs a host of its own",
            ("ps", "servers"),
            "have at most one server on each host",
        )


def _counted(spec: Spec, count: int) -> int:
    """Return `count` if the spec lets the job have so many nodes."""
    least, most = spec.nodes.min, spec.nodes.max
    if least <= count <= most:
        return count
    if least == most:
        message, hint = (
            f"the job has a fixed number of nodes, {most}",
            f'`nodes: "{min(count, most)}:{max(count, most)}"` makes it elastic',
        )
    else:
        message, hint = (
            f"the job has {least} to {most} nodes, not {count}",
            "`nodes` in the spec says how many it may have",
        )
    raise PlanError("nodes-out-of-range", message, ("nodes",), hint)


# Places: which host has room for which node, and with which of its devices.


def _equipped(hosts: Sequence[Host], counts: Mapping[str, int]) -> Sequence[Host]:
    """Return hosts with what was counted on them, where their lines say nothing.

    A host that could not be counted is taken for one like the smallest of the others: it is not up, or has no driver, so
    nothing starts there before somebody has looked at it again.
    """
    if not counts:
        return hosts
    said = [host.slots if host.devices is None else len(host.devices) for host in hosts]
    least = min([*counts.values(), *(number for number in said if number is not None)])
    return [
        replace(host, slots=counts.get(host.name, least)) if host.slots is None and host.devices is None else host
        for host in hosts
    ]


def _local_places(nodes: int, devices: int | None) -> list[_Place]:
    slots = None if devices is None else tuple(range(devices))
    shares = _split(slots, nodes)
    return [_Place(host, share, None) for host, share in zip(local_hosts(nodes), shares, strict=True)]


def _places(
    spec: Spec, known: Framework, most: int, hosts: Sequence[Host], placement: Mapping[int, str] | None
) -> list[_Place]:
    alike = known.roles(spec) == ALIKE
    takes = ("trainer", "server") if spec.ps else ("trainer",)
    able = [host for host in hosts if any(host.takes(role) for role in takes)]
    rooms = [place for host in able if not host.spare or (placement and alike) for place in _rooms(host)]
    if placement and alike:
        return _placed(rooms, placement)
    least = most if most < spec.nodes.max else spec.nodes.min
    if len(rooms) < least:
        raise PlanError(
            "too-few-hosts",
            f"the job needs {least} nodes and the hosts file has room for {len(rooms)}",
            ("nodes",),
            "add hosts, or lower `nodes`",
        )
    return rooms[:most]


def _placed(rooms: list[_Place], placement: Mapping[int, str]) -> list[_Place]:
    chosen = []
    for node in sorted(placement):
        room = next((room for room in rooms if room.host.name == placement[node]), None)
        if room is None:
            raise PlanError("no-room", f"node {node} is on {placement[node]}, which the hosts file has no room on")
        rooms.remove(room)
        chosen.append(room)
    return chosen


def _rooms(host: Host) -> list[_Place]:
    slots = host.devices if host.devices is not None else (None if host.slots is None else tuple(range(host.slots)))
    ref = types.HostRef(host.name, host.address)
    return [_Place(ref, share, host.interface, host.roles) for share in _split(slots, host.nodes)]


def _dealt(roles: Sequence[Role], places: Sequence[_Place], hosts: Sequence[Host]) -> list[_Task]:
    """Deal the processes of each role to places, one after the other, as many times round as it takes."""
    tasks = []
    for role in roles:
        if role.total is None:
            tasks += [_Task(role.name, place) for place in places]
            continue
        able = [place for place in places if place.takes(role.name)]
        if role.anywhere:
            able = _kept(hosts, role.name) or able or list(places)
        if not able:
            raise PlanError(
                "no-host-for-role",
                f"the job needs {role.total} {role.name}s, and no host of the first {len(places)} takes any",
                ("ps",),
                f"give one `roles={role.name}`, or no roles",
            )
        shares = [len(range(first, role.total, len(able))) for first in range(len(able))]
        tasks += [_Task(role.name, place, share) for place, share in zip(able, shares, strict=True) if share]
    return tasks


def _kept(hosts: Sequence[Host], role: str) -> list[_Place]:
    """Return the places of hosts whose lines name a role, whether or not they take others."""
    return [place for host in hosts if role in host.roles and not host.spare for place in _rooms(host)]


def _moved(
    tasks: Sequence[_Task], roles: Sequence[Role], hosts: Sequence[Host], placement: Mapping[int, str]
) -> list[_Task]:
    """Return tasks on the hosts where their nodes are; a host has room for a node of each role."""
    found, taken = [], set[tuple[str, int]]()
    anywhere = {role.name for role in roles if role.anywhere}
    rooms = [(number, place) for host in hosts for number, place in enumerate(_rooms(host))]
    for index, task in enumerate(tasks):
        name = placement.get(index, task.place.host.name)
        able = [(n, place) for n, place in rooms if place.takes(task.role) or task.role in anywhere]
        here = [(n, place) for n, place in able if place.host.name == name]
        free = [(n, place) for n, place in here if (f"{name} {task.role}", n) not in taken]
        if not free:
            raise PlanError("no-room", f"node {index} is on {name}, which the hosts file has no room on")
        taken.add((f"{name} {task.role}", free[0][0]))
        found.append(replace(task, place=free[0][1]))
    return found


def _pods(spec: Spec, roles: Sequence[Role], most: int) -> list[_Task]:
    """Return a pod for each node; in jobs with roles, one for each process of a role that has a total."""
    several = len(roles) > 1
    tasks = []
    for role in roles:
        # Where roles have totals, a trainer takes one device.
        slots = (0,) if role.total is not None else None
        nproc = None if role.total is None else 1
        for number in range(most if role.total is None else role.total):
            host = pod(spec.name, role.name, number, several)
            tasks.append(_Task(role.name, _Place(host, slots, None), nproc))
    return tasks


def _split(slots: tuple[int, ...] | None, shares: int) -> list[tuple[int, ...] | None]:
    """Deal a host's devices to its nodes, equally, neighbours together; what does not divide stays unused."""
    if slots is None:
        return [None] * shares
    size = len(slots) // shares
    return [slots[i * size : (i + 1) * size] for i in range(shares)]


# One node.


class _Builder:
    """Builds the nodes of one job; what is the same on all of them is built once."""

    def __init__(
        self,
        spec: Spec,
        known: Framework,
        context: Context,
        etcd: types.Etcd | None,
        cluster: types.Cluster | None,
    ) -> None:
        self.spec, self.known, self.context = spec, known, context
        self.local = context.target == "local"
        self.operator = cluster.operator if cluster is not None and has_operator(cluster) else None
        self.circle = port_of(spec.name, 0) if cluster is not None and not self.operator else None
        self.python = "python3" if self.local else spec.container.python
        self.env = tuple(sorted(spec.env.items()))
        self.etcd = etcd
        self.mounts = () if self.local else (*_mounts(spec), *certificates(spec))
        self.shm_size = shared_memory(spec, context.target)
        self.ulimits = _ulimits(spec)
        self.command = _command(spec, self.python)
        self.launch_env = _launch_env(spec)
        self.setup = spec.setup
        self.secrets = tuple(secret.name for secret in spec.secrets)
        self.workdir = _workdir(spec, context)
        self.starts: dict[Seat, Start] = {}
        kind = spec.devices.kind
        self.visible = (*_VISIBLE.get(kind, ()), *known.visible(kind)) if self.local else ()

    def node(self, index: int, task: _Task) -> types.Node:
        devices = _devices(self.spec, task)
        return types.Node(
            index,
            task.role,
            task.place.host,
            self._container(index, task, devices),
            self._launch(index, task, devices),
        )

    def _launch(self, index: int, task: _Task, devices: types.Devices) -> types.Launch:
        spec, place = self.spec, task.place
        labels = _device_labels(spec, devices, task.nproc)
        per_node = spec.command is not None and spec.per == "node"
        nproc = 1 if per_node else len(labels)
        start = self._start(Seat(self.python, nproc, self._seen(devices), task.role, self._member(place)))
        env = self.launch_env + start.env + (_per_node_env(len(labels)) if per_node else ())
        visible = tuple((name, ",".join(map(str, devices.ids or ()))) for name in self.visible)
        return types.Launch(
            node=index,
            host=place.host.name,
            role=task.role,
            nproc=nproc,
            start=() if per_node else start.argv,
            command=self.command,
            env=env + visible,
            log_name=start.log_name,
            devices=labels[:1] if per_node else labels,
            setup=self.setup,
            secrets=self.secrets,
            workdir=self.workdir,
            interface=None if self.local else (spec.network.interface or place.interface),
            interface_env=start.interface_env,
            stop_grace=spec.stop_grace_period,
            hang_timeout=spec.recovery.hang_timeout,
            etcd=self.etcd,
            rank_env=start.rank_env,
            scrub=start.scrub,
            kept=start.kept,
            process_env=start.process_env,
            listens=start.listens,
            after=start.after,
            until=start.until,
            regroups=start.regroups,
            rejoin=start.rejoin,
            circle=self.circle,
            lost=start.lost,
            stall=start.stall,
            rejoin_within=spec.recovery.window if start.rejoin is not None else None,
            rejoin_after=start.rejoin_after,
            apart=start.apart,
            meets=start.meets,
            one_port=start.one_port,
            elsewhere=start.elsewhere,
            standby=start.standby,
        )

    def _start(self, seat: Seat) -> Start:
        if seat not in self.starts:
            operator = self.operator
            known, spec = self.known, self.spec
            self.starts[seat] = known.under(spec, seat, operator) if operator else known.start(spec, seat)
        return self.starts[seat]

    def _member(self, place: _Place) -> str | None:
        """Return the member of etcd for a client that knows but one: that of its own host, or the first."""
        if self.etcd is None:
            return None
        own = [endpoint for endpoint in self.etcd.endpoints if endpoint.rpartition(":")[0] == place.host.address]
        return [*own, *self.etcd.endpoints][0]

    def _seen(self, devices: types.Devices) -> tuple[int, ...]:
        """Return the indices of a node's devices as its processes see them: a container has no others."""
        ids = devices.ids or ()
        return ids if self.local else tuple(range(len(ids)))

    def _container(self, index: int, task: _Task, devices: types.Devices) -> types.Container:
        spec, options, resources = self.spec, self.spec.container, self.spec.resources
        name = f"jobctl-{spec.name}-{index}"
        labels = (
            ("jobctl.job", spec.name),
            ("jobctl.node", str(index)),
            ("jobctl.role", task.role),
            ("jobctl.owner", self.context.owner),
            *(("jobctl.devices", ",".join(f"{devices.kind}:{i}" for i in ids)) for ids in [devices.ids] if ids),
            ("jobctl.version", self.context.version),
        )
        return types.Container(
            name=name,
            image="" if self.local else spec.image or "",
            pull=spec.pull,
            hostname=f"{spec.name}-{index}",
            python=self.python,
            user=options.user,
            runtime=options.runtime,
            env=self.env,
            labels=labels,
            mounts=self.mounts,
            devices=devices,
            extra_devices=options.devices,
            cap_add=options.cap_add,
            shm_size=self.shm_size,
            memory=resources.memory,
            cpus=resources.cpus,
            ulimits=self.ulimits,
            options=options.options,
            # The engine kills later than the launcher, so that the launcher's last report is not lost.
            stop_grace=spec.stop_grace_period + 5,
            # What a launcher may do, etcd tells it; without one only the supervisor can.
            restart="on-failure" if self.etcd else "no",
        )


# On `local` nothing renumbers devices, so each node's processes are shown their share of them.
_VISIBLE = {
    "gpu": ("CUDA_VISIBLE_DEVICES",),
    "dcu": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "xpu": ("XPU_VISIBLE_DEVICES",),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES",),
}


def _devices(spec: Spec, task: _Task) -> types.Devices:
    """Return a node's devices: trainers alone have some, those of mode `ps` one each."""
    if task.role != "trainer":
        return types.Devices("cpu", ())
    every = _all_devices(spec, task.place)
    if task.nproc is None or every.ids is None:
        return every
    if every.kind != "cpu" and len(every.ids) < task.nproc:
        raise PlanError(
            "too-many-trainers",
            f"{task.nproc} trainers are dealt to {task.place.host.name}, which has {len(every.ids)} devices for them",
            ("ps", "trainers"),
            "lower `ps.trainers`, or add nodes or devices",
        )
    return types.Devices(every.kind, every.ids[: task.nproc])


def _all_devices(spec: Spec, place: _Place) -> types.Devices:
    wanted = spec.devices
    if wanted.kind == "cpu":
        return types.Devices("cpu", ())
    if wanted.ids is not None:
        return types.Devices(wanted.kind, wanted.ids)
    if place.slots is None and wanted.count is None:
        raise PlanError(
            "devices-unknown",
            f"how many devices of kind `{wanted.kind}` host {place.host.name} has is not known",
            ("devices",),
            f"say `devices: {wanted.kind}:8` in the spec or `slots=8` in the hosts file; `check`, `plan` and `up` count them",
        )
    if wanted.count is None:
        return types.Devices(wanted.kind, place.slots)
    ids = tuple(range(wanted.count)) if place.slots is None else place.slots[: wanted.count]
    if len(ids) < wanted.count:
        raise PlanError(
            "too-few-devices",
            f"a node needs {wanted.count} devices of kind `{wanted.kind}` and {place.host.name} has {len(ids)} for it",
            ("devices",),
        )
    return types.Devices(wanted.kind, ids)


def _device_labels(spec: Spec, devices: types.Devices, nproc: int | None) -> tuple[str, ...]:
    if devices.kind == "cpu":
        cpus = (spec.devices.count if spec.devices.kind == "cpu" else None) or 1
        return tuple(f"cpu:{i}" for i in range(nproc or cpus))
    return tuple(f"{devices.kind}:{i}" for i in devices.ids or ())


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
    if context.target == "local":
        return os.path.normpath(os.path.join(context.directory, spec.code.source if spec.code else "."))
    return spec.code.target if spec.code else None


def _mounts(spec: Spec) -> tuple[types.Mount, ...]:
    volumes = tuple(types.Mount(v.kind, v.source or "", v.target, v.read_only) for v in spec.volumes)
    if spec.checkpoint is None:
        return volumes
    return (*volumes, types.Mount("bind", spec.checkpoint.dir, spec.checkpoint.dir))


def _ulimits(spec: Spec) -> tuple[types.Ulimit, ...]:
    limits = {name: types.Ulimit(name, u.soft, u.hard) for name, u in spec.resources.ulimits.items()}
    # Drivers pin memory and RDMA registers it: at Docker's default of 64 KiB that fails.
    if spec.devices.kind != "cpu" or any(path.startswith("/dev/infiniband") for path in spec.container.devices):
        limits.setdefault("memlock", types.Ulimit("memlock", -1, -1, optional=True))
    return tuple(limits[name] for name in sorted(limits))


# The whole job.


def code_of(spec: Spec, directory: str) -> types.Code:
    """Return the code of a spec in `directory`, which has some."""
    assert spec.code is not None
    source = os.path.normpath(os.path.join(directory, spec.code.source))
    folders = tuple(path.rstrip("/") for path in spec.outputs if path.endswith("/") or not PurePosixPath(path).suffix)
    files = tuple(path for path in spec.outputs if path.rstrip("/") not in folders)
    withheld = _secret_files(spec, directory)
    return types.Code(
        source, spec.code.target, spec.code.exclude, folders, files, include=spec.code.include, withheld=withheld
    )


def _secret_files(spec: Spec, directory: str) -> tuple[tuple[str, str], ...]:
    """Return the files that the spec takes secrets and variables from, each with what it is."""
    named = [(secret.file, f"secret `{secret.name}`") for secret in spec.secrets if secret.file is not None]
    named += [(name, "an env file") for name in spec.env_file]
    return tuple((os.path.normpath(os.path.join(directory, os.path.expanduser(name))), why) for name, why in named)


def _script(spec: Spec, context: Context) -> str | None:
    if spec.script is None or spec.code is not None or not context.script_here:
        return None
    return os.path.normpath(os.path.join(context.directory, spec.script))


def _checkpoint(spec: Spec) -> types.Checkpoint | None:
    if spec.checkpoint is None:
        return None
    where = os.path.join(spec.checkpoint.dir, spec.name) if spec.checkpoint.per_job else spec.checkpoint.dir
    return types.Checkpoint(where, spec.checkpoint.shared, spec.checkpoint.keep)


def _may_move(spec: Spec) -> bool:
    """Say whether a node finds its checkpoints on any host."""
    return spec.checkpoint is None or spec.checkpoint.shared


def _recovery(spec: Spec, spares: bool) -> types.Recovery:
    given = spec.recovery
    default: Literal["replace", "shrink", "wait"] = (
        "replace" if spares else "shrink" if spec.nodes.min != spec.nodes.max else "wait"
    )
    return types.Recovery(
        max_restarts=given.max_restarts,
        window=given.window,
        on_host_loss=given.on_host_loss or default,
        host_timeout=given.host_timeout,
        wait_timeout=given.wait_timeout,
        max_duration=given.max_duration,
        rules=tuple(types.Rule(rule.log, rule.exit, rule.do) for rule in given.rules),
    )
