"""Variables of Paddle: those that jobctl decides, whatever a spec's `env` says, and those that `env` may set otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec

# From 3.1 on rank 0 serves Paddle's store by libuv, in a thread that it leaves running while it ends. When another rank's
# connection closes in that moment, the thread aborts (SIGABRT in `LibUVClient::readCallback`, seen with 3.3.1), and a job
# that has trained to its end counts as failed. The server of older versions, which is still there, ends with the process
# (paddle/phi/core/distributed/store/tcp_store.cc, `MasterDaemon`).
STORE = ("FLAGS_tcp_store_using_libuv", "0")
# Programs of parameter servers are of the old kind, which Paddle 3 reads only where its new one is switched off.
OLD_PROGRAMS = ("FLAGS_enable_pir_api", "0")
# The generated code of etcd3 0.12 is too old for today's protobuf in C++.
ETCD_CLIENT = ("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")


def usual(spec: Spec, variable: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variable with its value, or nothing where the spec's `env` gives it another one."""
    return () if variable[0] in spec.env else (variable,)


# With what in a spec or a hosts file says the same, None where nothing has to. Anything else of a spec's `env` that begins
# with PADDLE_ is the user's own.
_SAYS: dict[str, str | None] = {
    "PADDLE_AUTO_CLUSTER": None,
    "PADDLE_BACKUP_ENV_PATH": None,
    "PADDLE_CURRENT_ENDPOINT": None,
    "PADDLE_CURRENT_IP": None,
    "PADDLE_DEVICES": "`devices`",
    "PADDLE_ELASTIC_ETCD_SERVICE_HOST": "`etcd.endpoints`",
    "PADDLE_ELASTIC_ETCD_SERVICE_PORT": "`etcd.endpoints`",
    "PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL": "`recovery`",
    "PADDLE_ELASTIC_JOB_ID": "`name`",
    "PADDLE_ELASTIC_LEVEL": "`recovery`",
    "PADDLE_ELASTIC_NP": "`nodes`",
    "PADDLE_ELASTIC_SERVER": "`etcd.endpoints`",
    "PADDLE_ELASTIC_TIMEOUT": "`paddle.elastic_timeout`",
    "PADDLE_GLOBAL_RANK": None,
    "PADDLE_GLOBAL_SIZE": None,
    "PADDLE_GLOO_FS_PATH": None,
    "PADDLE_GLOO_HTTP_ENDPOINT": None,
    "PADDLE_GLOO_PORT": None,
    "PADDLE_GLOO_RENDEZVOUS": None,
    "PADDLE_IPS": "the hosts file",
    "PADDLE_JOB_ID": "`name`",
    "PADDLE_LAUNCH_WITH_ARGS": None,
    "PADDLE_LOCAL_RANK": None,
    "PADDLE_LOCAL_SIZE": None,
    "PADDLE_LOG_DIR": None,
    "PADDLE_MASTER": "`rendezvous.port`, or `etcd`,",
    "PADDLE_MAX_RESTART": "`recovery.max_restarts`",
    "PADDLE_NNODES": "`nodes`",
    "PADDLE_NPROC_PER_NODE": "`devices`",
    "PADDLE_PORT": None,
    "PADDLE_PSERVERS": "`ps.servers`, with the hosts file,",
    "PADDLE_PSERVERS_IP_PORT_LIST": "`ps.servers`, with the hosts file,",
    "PADDLE_PSERVER_IPS": "`ps.servers`, with the hosts file,",
    "PADDLE_PSERVER_PORT": None,
    "PADDLE_RANK": None,
    "PADDLE_RANK_IN_NODE": None,
    "PADDLE_ROLE": None,
    "PADDLE_RUN_MODE": "`mode`",
    "PADDLE_SERVERS_ENDPOINTS": "`ps.servers`, with the hosts file,",
    "PADDLE_SERVER_NUM": "`ps.servers`, with the hosts file,",
    "PADDLE_SORT_IP": None,
    "PADDLE_START_PORT": None,
    "PADDLE_TRAINERS": "`nodes`, or `ps.trainers`,",
    "PADDLE_TRAINERS_ENDPOINTS": "`nodes`, or `ps.trainers`,",
    "PADDLE_TRAINERS_NUM": "`nodes`, or `ps.trainers`,",
    "PADDLE_TRAINER_ENDPOINTS": "`nodes`, or `ps.trainers`,",
    "PADDLE_TRAINER_ID": None,
    "PADDLE_TRAINER_IPS": "`nodes`, with the hosts file,",
    "PADDLE_TRAINER_NUM": "`nodes`, or `ps.trainers`,",
    "PADDLE_TRAINING_ROLE": None,
    "PADDLE_WITH_GLOO": "`ps.gloo`",
}

DECIDED = frozenset(_SAYS)
_OTHERS = {
    "POD_IP": "`addr=` in the hosts file",
    "MASTER_PORT": "`rendezvous.port`",
    "DISTRIBUTED_TRAINER_ENDPOINTS": "the hosts file",
    "TRAINING_ROLE": "`mode: ps`",
    **{f"FLAGS_selected_{kind}s": "`devices`" for kind in ("gpu", "xpu", "npu")},
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "XPU_VISIBLE_DEVICES"), "`devices`"),
}
INSTEAD = {**{name: says for name, says in _SAYS.items() if says}, **_OTHERS}
