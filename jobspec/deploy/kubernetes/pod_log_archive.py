"""The logs of a job's pods, kept below a folder as those of hosts are."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.pod_log_writers import NOTES, writers
from jobctl.jobspec.deploy.kubernetes.pod_logs import PodLog
from jobctl.jobspec.deploy.kubernetes.pods import Pod
from jobctl.jobspec.deploy.logs.seeking import RECORD
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.log_lines import Line
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.plan.types import Plan


def _kept_at(line: Line) -> Path:
    """Return where a line is kept once the job is down, as on hosts."""
    folder = Path(f"node-{line.node}", "logs")
    return folder / line.log if line.rank is None else folder / "0" / line.log


def collect(api: Api, pods: Sequence[Pod], plan: Plan | None, into: Path) -> tuple[int, dict[str, DeployError]]:
    """Write the logs of all pods below `into`, laid out as on hosts; return how many there are, and what could not be read.

    Where a node had several pods one after the other, their logs are in one file. A log that cannot be read, as its pod's node
    is off, ends with the reason: it keeps no other from being read, and nobody from taking the job down. Nodes are read side
    by side: a server may need half a minute, several times, to say that it does not reach one.
    """
    who = writers(pods, plan)
    nodes: dict[int, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.created):
        nodes.setdefault(who[pod.uid].node, []).append(pod)
    unread: dict[str, DeployError] = {}

    def keep(node: int) -> int:
        return sum(_keep(PodLog(api, pod, who[pod.uid]), into, unread) for pod in nodes[node])

    count = sum(fan_out(nodes, keep).done.values())
    return count, dict(sorted(unread.items()))


def _keep(log: PodLog, into: Path, unread: dict[str, DeployError]) -> int:
    """Write the log of one pod, and return in how many files; `unread` gets the reason if it cannot be read."""
    kept = _Kept(into)
    try:
        for line in log.so_far():
            kept.write(line)
    except DeployError as error:
        unread[log.pod.name] = error
        text = f"the log of pod {log.pod.name} could not be read: {error.message}"
        kept.write(Line(time.time(), log.writer.node, None, 0, NOTES, text.encode()))
    return kept.close()


class _Kept:
    """Logs that are kept below a folder, each with its index, and with the ranks of the processes that wrote them."""

    def __init__(self, into: Path) -> None:
        self.into = into
        self.files: dict[Path, tuple[BinaryIO, BinaryIO]] = {}

    def write(self, line: Line) -> None:
        """Append a line to its log, and its time to the index."""
        path = self.into / _kept_at(line)
        if path not in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.files[path] = path.open("ab"), path.with_name(f"{path.name}.idx").open("ab")
            self._note_rank(path, line)
        log, index = self.files[path]
        index.write(RECORD.pack(log.tell(), line.time))
        log.write(line.text + b"\n")

    def _note_rank(self, path: Path, line: Line) -> None:
        if line.rank is None:
            return
        record = path.parents[2] / "processes" / "0" / f"{path.suffix[1:]}.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"rank": line.rank}), encoding="utf-8")

    def close(self) -> int:
        """Return how many logs there are."""
        for pair in self.files.values():
            for file in pair:
                file.close()
        return len(self.files)
