"""PyTorch: `torchrun`, `python -m torch.distributed.run`, and the older `torch.distributed.launch`."""

from __future__ import annotations

import re

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.common import runs
from jobctl.jobspec.importers.devices import NodeDevices
from jobctl.jobspec.importers.draft import Draft
from jobctl.jobspec.importers.escaping import literal
from jobctl.jobspec.importers.launchers.options import NODES_TAKEN, Option, Parts, Table, option, require_script
from jobctl.jobspec.importers.notes import LOGS_KEPT
from jobctl.jobspec.importers.shell.expand import settled_or_empty

_PASSED = (
    ("--numa-binding", "--start-method", "--event-log-handler", "--signals-to-handle", "--logs-specs"),
    ("--virtual-local-rank",),
)


def _same(name: str) -> str:
    """`--nproc_per_node` and `--nproc-per-node` are one option."""
    return name.replace("_", "-") if name.startswith("--") else name


def _told(name: str, **more: str) -> Option:
    """Return the row of an option that may also be said by a variable, as `PET_NNODES`."""
    return option(name, variable=f"PET_{name.strip('-').replace('-', '_').upper()}", **more)


# fmt: off
TABLE = Table("torchrun", (
    _told("--nnodes", part="nnodes"),
    _told("--nproc-per-node", part="nproc"),
    option("--nproc-per-node", "--nproc-per-host", part="nproc"),
    _told("--rdzv-backend", part="backend"),
    _told("--rdzv-endpoint", part="endpoint"),
    _told("--rdzv-id", part="id"),
    _told("--rdzv-conf", part="conf"),
    _told("--master-addr", part="addr"),
    _told("--master-port", part="port"),
    option("--max-restarts", to="recovery.max_restarts", read=values.whole_number, variable="PET_MAX_RESTARTS"),
    option("-m", "--module", part="module", value=False),
    option("--no-python", part="no_python", value=False),
    option("--run-path", part="run_path", value=False),
    option("--use-env", part="use_env", value=False),
    # jobctl numbers nodes and starts one launcher on each.
    option("--standalone", value=False), _told("--node-rank", part="rank"), option("--local-addr"),
    option("--monitor-interval", why="jobctl looks after the processes"),
    option("--role", why="all processes are trainers"),
    option("--log-dir", why=LOGS_KEPT), option("--redirects", "-r", why=LOGS_KEPT),
    option("--tee", "-t", why=LOGS_KEPT),
    option("--local-ranks-filter", why=LOGS_KEPT), option("--duplicate-stdout-filters", why=LOGS_KEPT),
    option("--duplicate-stderr-filters", why=LOGS_KEPT),
    *(option(name, part=name) for name in _PASSED[0]),
    *(option(name, part=name, value=False) for name in _PASSED[1]),
), _same)
# fmt: on


def find(
    words: tuple[str, ...], env: dict[str, str], draft: Draft, line: int | None, *, older: bool = False
) -> NodeDevices:
    """Put what torchrun's `words` and variables say into the draft; `older`: those of `torch.distributed.launch`."""
    given, rest = TABLE.split(words, draft, line)
    require_script(rest, "torchrun [OPTIONS] train.py", line)
    parts = TABLE.apply(given, env, draft)
    draft.set("framework", "torch")
    kind = "module" if "module" in parts else "command" if "no_python" in parts else "script"
    runs(draft, kind, rest[0], tuple(rest[1:]))
    if older and "use_env" not in parts:
        draft.drop("--local-rank=N", "the script reads LOCAL_RANK, which each process gets")
    _nodes(parts, draft)
    _meeting(parts, draft)
    _passed(parts, draft)
    return _devices(parts, draft)


def _nodes(parts: Parts, draft: Draft) -> None:
    said = parts.get("nnodes", values.node_range)
    draft.set("nodes", said or (1, 1), NODES_TAKEN if "nnodes" in parts and not said else None)
    draft.name = settled_or_empty(parts.word("id") or "")
    draft.rank = parts.rank()


def _meeting(parts: Parts, draft: Draft) -> None:
    """Where the processes meet: at a host, or in an etcd."""
    backend = parts.get("backend", str) or "static"
    endpoint = parts.get("endpoint", values.endpoint)
    host = parts.get("addr", str)
    number = parts.get("port", values.port)
    if endpoint and backend.startswith("etcd"):
        draft.set("etcd.endpoints", (literal(f"{endpoint[0]}:{endpoint[1] or 2379}"),))
    elif endpoint:
        host, number = endpoint[0], endpoint[1] or number
    if number:
        draft.set("rendezvous.port", number)
    if host:
        draft.name_hosts(values.host_lines([host]))
    _conf(parts, draft)


def _conf(parts: Parts, draft: Draft) -> None:
    for pair in values.listed(parts.word("conf") or ""):
        name, _, text = pair.partition("=")
        timeout = draft.read(text, values.seconds, pair) if name in ("timeout", "join_timeout") else None
        if timeout:
            draft.set("rendezvous.timeout", timeout)
        elif name not in ("timeout", "join_timeout"):
            draft.drop(f"--rdzv-conf {pair}", "torchrun meets at an address of jobctl's choice")


def _passed(parts: Parts, draft: Draft) -> None:
    further: list[str] = []
    for name in _PASSED[0]:
        further += [name, parts.word(name) or ""] if name in parts else []
    further += [name for name in _PASSED[1] if name in parts]
    if further:
        draft.set("torch.torchrun", tuple(further))


def _devices(parts: Parts, draft: Draft) -> NodeDevices:
    word = parts.get("nproc", str)
    if word in ("gpu", "xpu"):
        return NodeDevices(word)
    if word == "cpu":
        draft.check("--nproc-per-node=cpu is a process for each core: write how many, `cpu:16`")
        return NodeDevices("cpu")
    if word == "auto":
        return NodeDevices()
    if word is not None and not re.fullmatch(r"[1-9]\d{0,4}", word):
        draft.drop(f"--nproc-per-node={word}", "it is not a number")
        return NodeDevices()
    return NodeDevices(count=int(word or 1))
