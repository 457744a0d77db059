"""PaddlePaddle: `paddle.distributed.launch` and `fleetrun`, of 2.x and 3.x, and the variables that say the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.common import runs
from jobctl.jobspec.importers.devices import VISIBLE, NodeDevices
from jobctl.jobspec.importers.draft import Draft, HostLine, ImportProblem
from jobctl.jobspec.importers.escaping import literal
from jobctl.jobspec.importers.launchers.options import NODES_TAKEN, Option, Parts, Table, option, require_script
from jobctl.jobspec.importers.notes import LOGS_KEPT, NO_PLACE
from jobctl.jobspec.importers.shell.expand import settled_or_empty
from jobctl.jobspec.importers.values import Endpoints

_PORTS = "jobctl chooses free ports"
_TOLD = "jobctl tells each process"
_RECOVERY = "jobctl starts again what failed: `recovery`"
_HETER = "there are no heterogeneous parameter servers in jobctl"


def _told(variable: str, why: str = _TOLD) -> Option:
    """Return the row of a variable that has no option."""
    return option(variable=variable, why=why)


# fmt: off
TABLE = Table("paddle.distributed.launch", (
    # How many, and where.
    option("--nnodes", part="nnodes", variable="PADDLE_NNODES"),
    option("--np", part="np", variable="PADDLE_ELASTIC_NP"),
    option("--ips", "--cluster_node_ips", part="ips", variable="PADDLE_IPS"),
    option("--host", part="host", variable="POD_IP"),
    option("--node_ip", part="host"),
    option("--master", part="master", variable="PADDLE_MASTER"),
    option("--rank", part="rank"), option(variable="PADDLE_RANK", part="rank"),
    option("--job_id", part="job_id", variable="PADDLE_JOB_ID"),
    option(variable="PADDLE_ELASTIC_JOB_ID", part="job_id"),
    # Devices.
    option("--gpus", "--selected_gpus", part="gpus"),
    option("--xpus", "--selected_xpus", part="xpus"),
    option("--npus", "--selected_npus", part="npus"),
    option("--devices", part="devices", variable="PADDLE_DEVICES"),
    option("--nproc_per_node", part="nproc", variable="PADDLE_NPROC_PER_NODE"),
    option("--backend", part="backend"),
    option(variable="FLAGS_selected_gpus", part="gpus"),
    option(variable="FLAGS_selected_xpus", part="xpus"),
    option(variable="FLAGS_selected_npus", part="npus"),
    # Parameter servers.
    option("--run_mode", part="run_mode", variable="PADDLE_RUN_MODE"),
    option("--server_num", part="server_num", variable="PADDLE_SERVER_NUM"),
    option("--trainer_num", "--worker_num", part="trainer_num", variable="PADDLE_TRAINER_NUM"),
    option("--servers", part="servers", variable="PADDLE_SERVERS_ENDPOINTS"),
    option("--trainers", "--workers", part="trainers", variable="PADDLE_TRAINERS_ENDPOINTS"),
    option(variable="PADDLE_PSERVERS_IP_PORT_LIST", part="servers"),
    option(variable="PADDLE_PSERVERS", part="servers"),
    option(variable="PADDLE_PSERVER_IPS", part="servers"),
    option(variable="PADDLE_TRAINER_IPS", part="trainer_ips"),
    option(variable="PADDLE_TRAINER_ENDPOINTS", part="trainers"),
    option(variable="DISTRIBUTED_TRAINER_ENDPOINTS", part="trainers"),
    option(variable="PADDLE_TRAINERS_NUM", part="total"),
    option(variable="PADDLE_TRAINERS", part="total"),
    option(variable="TRAINING_ROLE", part="role"),
    option(variable="PADDLE_TRAINING_ROLE", part="role"),
    option(variable="PADDLE_ROLE", part="role"),
    option("--with_gloo", part="gloo", variable="PADDLE_WITH_GLOO"),
    option("--heter_worker_num", why=_HETER), option("--heter_workers", why=_HETER),
    option("--heter_devices", why=_HETER), option("--heter_worker_device", why=_HETER),
    option("--coordinator_num", why=_HETER), option("--coordinators", why=_HETER),
    _told("PADDLE_HETER_TRAINER_IP_PORT_LIST", _HETER),
    # Recovery.
    option("--elastic_server", part="etcd", variable="PADDLE_ELASTIC_SERVER"),
    option("--max_restart", to="recovery.max_restarts", read=values.whole_number, variable="PADDLE_MAX_RESTART"),
    option("--elastic_timeout", to="paddle.elastic_timeout", read=values.seconds, variable="PADDLE_ELASTIC_TIMEOUT"),
    option("--elastic_level", why=_RECOVERY, variable="PADDLE_ELASTIC_LEVEL"),
    option("--fault_tolerance_level", "--elastic_fault_tolerance_level", why=_RECOVERY,
           variable="PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL"),
    option("--elastic_pre_hook", why="say it in `setup`"),
    option("--scale", why="`jobctl scale` does that", variable="PADDLE_ELASTIC_SCALE"),
    option("--force", why="`jobctl scale` does that", variable="PADDLE_ELASTIC_FORCE"),
    _told("PADDLE_ELASTIC_TTL", "`recovery.host_timeout` says when a host counts as lost"),
    option("--legacy", part="legacy"),
    # What jobctl does in its own way.
    option("--log_dir", why=LOGS_KEPT, variable="PADDLE_LOG_DIR"),
    option("--log_level", why=LOGS_KEPT, variable="PADDLE_LOG_LEVEL"),
    option("--log_overwrite", why=LOGS_KEPT, variable="PADDLE_LOG_OVERWRITE"),
    option("--enable_gpu_log", why=LOGS_KEPT),
    option("--print_config", why=LOGS_KEPT),
    option("--sort_ip", why="nodes are in the order of the hosts file", variable="PADDLE_SORT_IP"),
    option("--start_port", "--started_port", why=_PORTS, variable="PADDLE_START_PORT"),
    option("--http_port", why=_PORTS), option("--gloo_port", why=_PORTS, variable="PADDLE_GLOO_PORT"),
    option("--use_paddlecloud", value=False), option("--use_gpu"),
    _told("FLAGS_START_PORT", _PORTS), _told("PADDLE_PORT", _PORTS), _told("PADDLE_PSERVER_PORT", _PORTS),
    _told("PADDLE_GLOO_RENDEZVOUS"), _told("PADDLE_GLOO_HTTP_ENDPOINT"), _told("PADDLE_GLOO_FS_PATH"),
    _told("PADDLE_TRAINER_ID"), _told("PADDLE_CURRENT_ENDPOINT"), _told("PADDLE_CURRENT_IP"),
    _told("PADDLE_RANK_IN_NODE"),
    _told("PADDLE_GLOBAL_RANK"), _told("PADDLE_GLOBAL_SIZE"), _told("PADDLE_LOCAL_RANK"), _told("PADDLE_LOCAL_SIZE"),
    _told("POD_NAME"), _told("PADDLE_LAUNCH_WITH_ARGS"),
    option("--auto_parallel_config", why=NO_PLACE, variable="PADDLE_AUTO_PARALLEL_CONFIG"),
    option("--auto_cluster_config", why=NO_PLACE, variable="PADDLE_AUTO_CLUSTER"),
    option("--auto_tuner_json", why=NO_PLACE), option("--cluster_topo_path", why=NO_PLACE),
    option("--rank_mapping_path", why=NO_PLACE), option("--rank_mapping_file", why=NO_PLACE),
    option("--enable_auto_mapping", why=NO_PLACE),
))
# fmt: on

_RUN_CHECK = "paddle.distributed.launch.plugins.test"

# Options that the launcher of 2.3 and later does not have.
_OLD = ("--elastic_server", "--np", "--worker_num", "--workers", "--heter_worker_num", "--http_port")


def find(words: tuple[str, ...], env: dict[str, str], draft: Draft, line: int | None) -> NodeDevices:
    """Put what the launcher's `words` and variables say into the draft. Raises ImportProblem."""
    given, rest = TABLE.split(words, draft, line)
    require_script(rest, "paddle.distributed.launch [OPTIONS] train.py", line)
    # Paddle's launcher lets a variable win over the option of the same meaning.
    parts = TABLE.apply(given, env, draft, env_wins=True)
    name = settled_or_empty(rest[0]) or rest[0]
    # What ends in a variable that only the environment knows is more often a script than a program.
    kind = "script" if name.endswith((".py", "}")) else "command"
    # A word of the launcher's, not a program: it trains a small model of its own (launch/plugins, from 2.3 on).
    kind, what = ("module", _RUN_CHECK) if name == "run_check" else (kind, rest[0])
    runs(draft, kind, what, tuple(rest[1:]))
    devices = read(parts, draft)
    old = sorted({one.written.split("=")[0].split()[0] for _, one in given} & set(_OLD))
    if old and draft.get("paddle.launcher") is None and draft.get("mode") != "ps":
        are = "are options" if len(old) > 1 else "is an option"
        draft.check(
            f"{', '.join(old)} {are} of Paddle 2.2 and older: such an image needs `paddle: {{launcher: legacy}}`"
        )
    return devices


_VERSION = re.compile(r"paddle(?:paddle)?(?:-gpu)?:v?(\d+)\.(\d+)")


def _launcher(parts: Parts, draft: Draft, ps: bool) -> None:
    """Choose the launcher: 2.3 brought the new one.

    In mode `ps` no launcher of Paddle's takes part. Programs of Paddle 2 know a port for each server, those of Paddle 1 one
    for all.
    """
    match = _VERSION.search(draft.image or "")
    version = (int(match[1]), int(match[2])) if match else (3, 0)
    if parts.get("legacy", values.truth):
        draft.set("paddle.launcher", "legacy")
    elif "servers" in parts and parts.written("servers").startswith("PADDLE_PSERVER_IPS="):
        draft.set("paddle.launcher", "legacy", "a program of Paddle 1, which knows one port for all servers")
    elif "trainer_ips" in parts and not ps:
        draft.set("paddle.launcher", "legacy", "a program of Paddle 1, which knows one port for all trainers")
    elif version < ((2, 0) if ps else (2, 3)):
        draft.set("paddle.launcher", "legacy", f"the image has Paddle {'1' if ps else '2.2 or older'}")


def find_variables(env: dict[str, str], draft: Draft, others: Sequence[Mapping[str, str | None]] = ()) -> NodeDevices:
    """Put what the variables of a process say into the draft; `others` are those of the other ones on its host."""
    visible = _devices_of_all(env, others)
    parts = TABLE.apply((), env, draft)
    devices = read(parts, draft)
    hosts = [host for host, _ in _endpoints(parts, "trainers")]
    each = devices.count or max((hosts.count(host) for host in hosts), default=0) or len(others) + 1
    if draft.get("mode") == "ps":
        each = _trainers_of_a_host(draft)
    known = devices.ids or (values.ids(env[visible]) if visible else ())
    if each > max(1, len(known)) or (each > 1 and not known):
        # A process is told its own device, not those of the others.
        kind = devices.kind or (VISIBLE[visible] if visible else None)
        for name in VISIBLE:
            env.pop(name, None)
        return replace(devices, kind=kind, count=each, ids=None)
    return devices


_SELECTED = ("FLAGS_selected_gpus", "FLAGS_selected_xpus", "FLAGS_selected_npus")


def _devices_of_all(env: dict[str, str], others: Sequence[Mapping[str, str | None]]) -> str | None:
    """Have `env` name the devices of all processes of a host; return the variable by which they are made visible."""
    told: dict[str, set[str]] = {}
    for name in (*VISIBLE, *_SELECTED):
        words = [env.get(name), *(other.get(name) for other in others)]
        if all(re.fullmatch(r"\d{1,4}(,\d{1,4})*", word or "") for word in words):
            told[name] = {item for word in words for item in (word or "").split(",")}
            env[name] = ",".join(sorted(told[name], key=int))
    visible = next((name for name in told if name in VISIBLE), None)
    if visible and len(told[visible]) > 1:
        for name in _SELECTED:  # counted from 0 on among those that the process sees
            env.pop(name, None)
    return visible


def read(parts: Parts, draft: Draft) -> NodeDevices:
    """Put the parts into the draft, and return what they say about devices."""
    draft.set("framework", "paddle")
    draft.name = settled_or_empty(parts.word("job_id") or "")
    draft.rank = parts.rank()
    ps = _is_ps(parts)
    _launcher(parts, draft, ps)
    endpoints = _endpoints(parts, "trainers"), _endpoints(parts, "servers")
    _hosts(parts, draft, endpoints, ps)
    _etcd(parts, draft)
    _nodes(parts, draft, ps)
    if ps:
        _ps(parts, draft, *endpoints)
    elif "gloo" in parts:
        draft.drop(parts.written("gloo"), "gloo is for parameter servers")
    return _devices(parts, draft, ps)


def _endpoints(parts: Parts, part: str) -> Endpoints:
    endpoints: Endpoints = parts.get(part, values.endpoints) or ()
    return endpoints


def _is_ps(parts: Parts) -> bool:
    mode = parts.get("run_mode", str.lower)
    if mode not in (None, "collective", "ps"):
        raise ImportProblem(f"there is no place for run_mode `{mode}` in a job", "jobctl knows `collective` and `ps`")
    told = any(parts.word(part) for part in ("server_num", "servers"))
    worker = any(parts.word(part) for part in ("trainer_num", "trainers"))
    # A list of trainers alone is what the launcher tells the processes of a collective job.
    return mode == "ps" or (mode is None and (told or (worker and "role" in parts) or "trainer_num" in parts))


def _hosts(parts: Parts, draft: Draft, endpoints: tuple[Endpoints, Endpoints], ps: bool) -> None:
    trainers, servers = ([host for host, _ in listed] for listed in endpoints)
    trainers = trainers or list(parts.get("trainer_ips", values.host_names) or ())
    if ps and (trainers or servers):
        draft.name_hosts(_with_roles(trainers, servers))
        if not trainers and draft.hosts:
            draft.check("nothing names the trainers' hosts: those of the servers are taken")
        return
    ips = parts.get("ips", values.host_names) or ()
    draft.name_hosts(values.host_lines(ips or dict.fromkeys(trainers)))
    master = parts.get("master", values.endpoint) if not _by_etcd(parts) else None
    if master and master[1]:
        draft.set("rendezvous.port", master[1])
    draft.name_hosts(values.host_lines([master[0]] if master else ()))
    draft.name_hosts(values.host_lines(parts.get("host", values.host_names) or ()))


def _with_roles(trainers: Sequence[str], servers: Sequence[str]) -> list[HostLine]:
    """Return the hosts, with roles where they differ; where trainers run may be nowhere said."""
    names = list(dict.fromkeys((*servers, *trainers)))
    both = {name: tuple(role for role, those in (("server", set(servers)), ("trainer", set(trainers))) if name in those)
            for name in names}  # fmt: skip
    alike = not trainers or set(both.values()) == {("server", "trainer")}
    return [HostLine(line.name, roles=() if alike else both[line.name]) for line in values.host_lines(names)]


def _by_etcd(parts: Parts) -> bool:
    return (parts.word("master") or "").startswith("etcd://")


def _etcd(parts: Parts, draft: Draft) -> None:
    part = "master" if _by_etcd(parts) else "etcd"
    endpoints = parts.get(part, values.etcd_endpoints)
    if endpoints:
        draft.set("etcd.endpoints", tuple(literal(endpoint) for endpoint in endpoints))


def _nodes(parts: Parts, draft: Draft, ps: bool) -> None:
    """How many nodes: as given, otherwise as many as hosts are named."""
    given = "nnodes" if "nnodes" in parts else "np"
    said = parts.get(given, values.node_range)
    hosts = sum(host.nodes for host in draft.hosts.values() if host.takes_nodes)
    named = hosts if any(part in parts for part in ("ips", "trainers", "trainer_ips", "servers")) else 0
    least, most = said or (max(named, 1),) * 2
    if least != most and (ps or draft.get("etcd") is None):
        why = "parameter servers need a fixed number of nodes" if ps else "without etcd Paddle waits for all of them"
        draft.drop(f"{least}:{most}", f"{why}, so there are {most} nodes")
        least = most
    draft.set("nodes", (least, most), NODES_TAKEN if given in parts and not said else None)
    loopback = [text for text in draft.get("etcd.endpoints") or () if values.loopback(text.rpartition(":")[0])]
    if loopback and most > 1:
        draft.check(f"{loopback[0]} is each host's own: name the etcd as all hosts reach it")


def _ps(parts: Parts, draft: Draft, trainers: Endpoints, servers: Endpoints) -> None:
    draft.set("mode", "ps")
    nodes = draft.get("nodes")[1]

    def total(listed: Endpoints, part: str, whole: str) -> int:
        if listed:
            return len(listed)
        all_of_them: int | None = parts.get(whole, values.positive) if whole else None
        # The launcher counts those of each node, and takes 0 for 1
        each: int = parts.get(part, values.whole_number) or 1
        return all_of_them or each * int(nodes)

    count = total(servers, "server_num", "")
    draft.set("ps.servers", count)
    if draft.get("paddle.launcher") == "legacy" and count > nodes:
        draft.check(f"programs of Paddle 1 know one port for all {count} servers, so each needs a node: raise `nodes`")
    draft.set("ps.trainers", total(trainers, "trainer_num", "total"))
    gloo = parts.get("gloo", values.whole_number)
    if gloo:
        draft.set("ps.gloo", gloo)


def _trainers_of_a_host(draft: Draft) -> int:
    serving = sum(host.nodes for host in draft.hosts.values() if host.roles and "trainer" not in host.roles)
    return int(-(-draft.get("ps.trainers") // max(1, draft.get("nodes")[1] - serving)))


def _devices(parts: Parts, draft: Draft, ps: bool) -> NodeDevices:
    # Trainer i of a host takes its i-th device.
    count = _trainers_of_a_host(draft) if ps else parts.get("nproc", values.positive)
    kinds = {"gpus": "gpu", "xpus": "xpu", "npus": "npu", "devices": None}
    for part, kind in kinds.items():
        if parts.word(part):
            ids = parts.get(part, values.ids)
            return NodeDevices(kind, None if ids else count, ids)
    kind = "cpu" if parts.get("backend", str.lower) == "gloo" else None
    return NodeDevices(kind, count, usual="cpu" if ps else "gpu")
