"""MindSpore: `msrun`, and the variables of a cluster whose processes are started one by one."""

from __future__ import annotations

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.common import runs
from jobctl.jobspec.importers.devices import NodeDevices
from jobctl.jobspec.importers.draft import Draft, ImportProblem
from jobctl.jobspec.importers.launchers.options import Parts, Table, option, require_script
from jobctl.jobspec.importers.launchers.python import python
from jobctl.jobspec.importers.notes import LOGS_KEPT, NO_PLACE, NOT_BOUND

# fmt: off
TABLE = Table("msrun", (
    option("--worker_num", part="workers"),
    option("--local_worker_num", part="local"),
    option("--master_addr", part="addr"),
    option("--master_port", part="port"),
    option("--cluster_time_out", to="rendezvous.timeout", read=values.seconds),
    option("--node_rank", part="rank"), option("--join"),
    option("--log_dir", why=LOGS_KEPT), option("--worker_log_name", why=LOGS_KEPT),
    option("--tail_worker_log", why=LOGS_KEPT),
    option("--bind_core", why=NOT_BOUND), option("--bind_numa", why=NOT_BOUND),
    option("--sim_level", why=NO_PLACE), option("--sim_rank_id", why=NO_PLACE),
    option("--rank_table_file", why=NO_PLACE),
    # The variables of the processes.
    option(variable="MS_WORKER_NUM", part="workers"),
    option(variable="MS_SCHED_HOST", part="addr"),
    option(variable="MS_SCHED_PORT", part="port"),
    option(variable="MS_ROLE"), option(variable="MS_NODE_ID"), option(variable="MS_WORKER_IP"),
    option(variable="DEVICE_ID"), option(variable="RANK_ID"), option(variable="RANK_SIZE"),
    option(variable="MS_SERVER_NUM", part="servers"),
    option(variable="MS_TOPO_TIMEOUT", to="rendezvous.timeout", read=values.seconds),
    option(variable="MS_NODE_TIMEOUT", to="mindspore.node_timeout", read=values.seconds),
    option(variable="MS_ENABLE_RECOVERY", part="recovery"),
    option(variable="MS_RECOVERY_PATH", why="jobctl gives each run its own; checkpoints lie where `checkpoint` says"),
    option(variable="RANK_TABLE_FILE", why=NO_PLACE),
    option(variable="MS_HCCL_CM_INIT", why="MindSpore does not know it any more"),
))
# fmt: on


def find(words: tuple[str, ...], env: dict[str, str], draft: Draft, line: int | None) -> NodeDevices:
    """Put what msrun's `words` say into the draft. Raises ImportProblem."""
    given, rest = TABLE.split(words, draft, line)
    require_script(rest, "msrun [OPTIONS] train.py", line)
    parts = TABLE.apply(given, env, draft)
    inner = python(rest)
    if inner is not None and inner.kind != "code":
        runs(draft, inner.kind, inner.what, inner.args)
    else:
        runs(draft, "script" if rest[0].endswith(".py") else "command", rest[0], tuple(rest[1:]))
    draft.rank = parts.rank()
    workers = parts.get("workers", values.positive) or 8
    local = parts.get("local", values.positive) or min(8, workers)
    return read(parts, draft, workers, local)


def find_variables(env: dict[str, str], draft: Draft, local: int | None, total: int | None = None) -> NodeDevices:
    """Put what variables alone say into the draft; `local` workers are started on each node (None: all), of `total`."""
    parts = TABLE.apply((), env, draft)
    workers = parts.get("workers", values.positive) or total or local or 1
    host = parts.get("addr", str)
    if host and values.loopback(host):
        local = workers  # at such an address a scheduler meets nobody from elsewhere
    elif local == 1 < workers and total is None:
        draft.check(
            f"{workers} workers, and nothing says how many on each host: one is taken; or `nodes: 1` and {workers} devices"
        )
    return read(parts, draft, workers, local or workers)


def read(parts: Parts, draft: Draft, workers: int, local: int) -> NodeDevices:
    """Put the parts into the draft, and return what they say about devices."""
    draft.set("framework", "mindspore")
    if parts.get("servers", values.whole_number):
        raise ImportProblem("MindSpore has no parameter servers any more", "leave MS_SERVER_NUM out")
    if workers % local:
        draft.check(f"{workers} workers, {local} on a node: jobctl starts as many on each node")
    draft.set("nodes", (max(1, workers // local),) * 2)
    host, number = parts.get("addr", str), parts.get("port", values.port)
    if host:
        draft.name_hosts(values.host_lines([host]))
    if number:
        draft.set("rendezvous.port", number)
    native = parts.get("recovery", values.truth)
    return NodeDevices(count=local, usual="gpu" if native else "npu", native=bool(native))
