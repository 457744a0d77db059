"""DeepSpeed's launcher: hosts come from its host file, processes from their slots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.common import runs
from jobctl.jobspec.importers.devices import NodeDevices
from jobctl.jobspec.importers.draft import Draft, HostLine
from jobctl.jobspec.importers.launchers.options import NODES_TAKEN, Parts, Table, option, require_script
from jobctl.jobspec.importers.mpi import hostfile
from jobctl.jobspec.importers.notes import LOGS_KEPT, NO_PLACE, NOT_BOUND
from jobctl.jobspec.importers.shell.expand import Read, settled_or_empty

_SSH = "SSH is as your own configuration says"

# fmt: off
TABLE = Table("deepspeed", (
    option("-H", "--hostfile", part="hostfile"),
    option("-i", "--include", part="include"),
    option("-e", "--exclude", part="exclude"),
    option("--num_nodes", part="nodes"),
    option("--num_gpus", "--num_accelerators", part="gpus"),
    option("--master_addr", part="addr"),
    option("--master_port", part="port"),
    option("--min_elastic_nodes", part="least"),
    option("--max_elastic_nodes", part="most"),
    option("--elastic_training", value=False), option("--force_multi", value=False), option("--node_rank", part="rank"),
    option("--module", part="module", value=False),
    option("--no_python", part="no_python", value=False),
    option("--no_local_rank", part="no_local_rank", value=False),
    option("--launcher", why="jobctl starts the nodes"), option("--launcher_args", why="jobctl starts the nodes"),
    option("--no_ssh", why=_SSH, value=False), option("--no_ssh_check", why=_SSH, value=False),
    option("--ssh_port", part="ssh_port"),
    option("--save_pid", why=LOGS_KEPT, value=False), option("--enable_each_rank_log", why=LOGS_KEPT),
    option("--bind_cores_to_rank", why=NOT_BOUND, value=False), option("--bind_core_list", why=NOT_BOUND),
    option("--autotuning", why=NO_PLACE), option("--venv_script", why="the image has to bring what it holds"),
))
# fmt: on


def find(words: tuple[str, ...], env: dict[str, str], draft: Draft, line: int | None, read: Read) -> NodeDevices:
    """Put what DeepSpeed's `words` say into the draft. Raises ImportProblem."""
    given, rest = TABLE.split(words, draft, line)
    require_script(rest, "deepspeed [OPTIONS] train.py", line)
    parts = TABLE.apply(given, env, draft)
    draft.set("framework", "torch")
    draft.rank = parts.rank()
    kind = "module" if "module" in parts else "command" if "no_python" in parts else "script"
    runs(draft, kind, rest[0], tuple(rest[1:]))
    if "no_local_rank" not in parts:
        draft.drop("--local_rank=N", "the script reads LOCAL_RANK, which each process gets")
    number, host = parts.get("port", values.port), parts.get("addr", str)
    if number:
        draft.set("rendezvous.port", number)
    chosen = _hosts(parts, draft, read)
    draft.name_hosts(chosen or values.host_lines([host] if host else ()))
    return _devices(parts, draft, chosen)


def _hosts(parts: Parts, draft: Draft, read: Read) -> tuple[HostLine, ...]:
    word = parts.word("hostfile")
    if word is None:
        return _chosen(parts, draft, ())
    hosts = hostfile(read(settled_or_empty(word)) or "")
    if not hosts:
        draft.drop(parts.written("hostfile"), "there is no such file here that names hosts: add them to hosts.txt")
    ssh_port = parts.get("ssh_port", values.port)
    return tuple(replace(host, port=ssh_port) for host in _chosen(parts, draft, hosts))


def _chosen(parts: Parts, draft: Draft, hosts: tuple[HostLine, ...]) -> tuple[HostLine, ...]:
    """Return the hosts that `--include` and `--exclude` leave."""
    if "include" in parts:
        wanted = _places(parts.get("include", str) or "")
        slots = {host.name: host.slots for host in hosts}
        hosts = tuple(
            HostLine(name, slots=slots.get(name), devices=ids) for name, ids in wanted if not values.loopback(name)
        )
    for name, ids in _places(parts.get("exclude", str) or ""):
        if ids:
            draft.drop(f"{parts.written('exclude')}", "leave out devices by `devices=` in hosts.txt")
        hosts = tuple(host for host in hosts if ids or host.name != name)
    most = parts.get("nodes", values.positive)
    return hosts[:most] if most and most > 0 else hosts


def _places(text: str) -> list[tuple[str, tuple[int, ...] | None]]:
    """`a:0,1@b` → hosts and their devices."""
    found: list[tuple[str, tuple[int, ...] | None]] = []
    for place in filter(None, text.split("@")):
        name, _, numbers = place.partition(":")
        found.append((name, _numbers(numbers)))
    return found


def _numbers(text: str) -> tuple[int, ...] | None:
    try:
        return values.ids(text) if text else None
    except ValueError:
        return None


def _devices(parts: Parts, draft: Draft, hosts: Iterable[HostLine]) -> NodeDevices:
    known = list(hosts)
    local = [ids for name, ids in _places(parts.get("include", str) or "") if values.loopback(name)]
    said = parts.get("nodes", values.positive) or len(known) or len(local)
    nodes = said or 1
    least, most = parts.get("least", values.whole_number), parts.get("most", values.whole_number)
    elastic = least and most and least <= most
    taken = not said and not elastic and ("nodes" in parts or "hostfile" in parts)
    draft.set("nodes", (least, most) if elastic else (nodes, nodes), NODES_TAKEN if taken else None)
    counts = {len(host.devices) if host.devices else host.slots for host in known}
    count = parts.get("gpus", values.positive) or (next(iter(counts)) if len(counts) == 1 else None)
    if len(counts) > 1 and not parts.word("gpus"):
        draft.check("hosts with different numbers of devices: each node uses all of its host's")
    return NodeDevices("gpu", None if local and local[0] else count, local[0] if local else None)
