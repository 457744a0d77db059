"""The logs of a job's pods, kept below a folder as those of hosts are."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.pod_log_writers import NOTES, writers
from jobctl.jobspec.deploy.kubernetes.pod_logs import ENDED_LOGS_TIMEOUT, PodLog
from jobctl.jobspec.deploy.kubernetes.pods import Pod
from jobctl.jobspec.deploy.kubernetes.problems import Cut
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
    """Write the logs of all pods below `into`; return how many there are, and what could not be read."""
    archive = PodLogArchive(api, pods, plan, into)
    archive.collect()
    archive.close()
    return archive.count, dict(sorted(archive.unread.items()))


@contextmanager
def collecting(api: Api, pods: Sequence[Pod], plan: Plan | None, into: Path) -> Iterator[PodLogArchive]:
    """Write the logs of all pods below `into`, with what they print in the block, which ends them."""
    archive = PodLogArchive(api, pods, plan, into)
    archive.collect()
    with archive.following():
        yield archive


class PodLogArchive:
    """The logs of all pods below `into`, laid out as on hosts. `unread` says of which pods why they could not be read.

    Where a node had several pods one after the other, their logs are in one file. A log that cannot be read, as its pod's node
    is off, ends with the reason: it keeps no other from being read, and nobody from taking the job down.
    """

    def __init__(self, api: Api, pods: Sequence[Pod], plan: Plan | None, into: Path) -> None:
        who = writers(pods, plan)
        self.into, self.unread = into, dict[str, DeployError]()
        self._logs: dict[int, list[PodLog]] = {}
        for pod in sorted(pods, key=lambda pod: pod.created):
            self._logs.setdefault(who[pod.uid].node, []).append(PodLog(api, pod, who[pod.uid]))
        self._kept = {node: _Kept(into) for node in self._logs}

    @property
    def count(self) -> int:
        """How many logs there are."""
        return sum(len(kept.paths) for kept in self._kept.values())

    @property
    def place(self) -> Path | None:
        """Where they are, None if there are none."""
        return self.into if self.count else None

    def collect(self) -> None:
        """Write what there is now.

        Nodes are read side by side: a server may need half a minute, several times, to say that it does not reach one.
        """
        fan_out(self._logs, self._keep)

    def _keep(self, node: int) -> None:
        kept = self._kept[node]
        for log in self._logs[node]:
            try:
                for line in log.so_far():
                    kept.write(line)
            except DeployError as error:
                self.unread[log.pod.name] = error
                text = f"the log of pod {log.pod.name} could not be read: {error.message}"
                kept.write(Line(time.time(), node, None, 0, NOTES, text.encode()))
        kept.let_go()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Keep also what pods print in the block that ends them: processes may save, and say so, when they are told to end.

        Connections are open when the block begins: the server has nothing more of a pod that is gone. They end with the pods.
        """
        going = [log for logs in self._logs.values() for log in logs if not log.pod.ended]
        logs = {log.pod.name: log for log in going if log.pod.name not in self.unread}
        answers = fan_out(logs, lambda name: logs[name].open_rest()).done
        threads = [
            threading.Thread(target=self._follow, args=(logs[name], answer), name=f"log of {name}", daemon=True)
            for name, answer in answers.items()
        ]
        for thread in threads:
            thread.start()
        try:
            yield
            deadline = time.monotonic() + ENDED_LOGS_TIMEOUT
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        finally:
            self.close()

    def _follow(self, log: PodLog, answer: Any) -> None:
        """Keep what comes on an open answer, and on further ones if its connection breaks, until the pod has ended or is gone.

        Processes may save for minutes without a word. Nothing more is kept once the disk is full.
        """
        kept = self._kept[log.writer.node]

        def keep(line: Line) -> None:
            kept.write(line)
            kept.let_go()

        def failed(error: DeployError | None) -> None:
            if error is not None and kept.ended:
                raise error  # nobody waits for it any more

        with suppress(DeployError, OSError):
            try:
                for line in log.rest(answer):
                    keep(line)
            except Cut:
                log.follow(keep, failed)

    def close(self) -> None:
        """Write no more."""
        for kept in self._kept.values():
            kept.end()


class _Kept:
    """Logs that are kept below a folder, each with its index, and with the ranks of the processes that wrote them.

    A job may have more processes than this one may have open files: between two writers, it has none open.
    """

    def __init__(self, into: Path) -> None:
        self.into, self.paths = into, set[Path]()
        self._open: dict[Path, tuple[BinaryIO, BinaryIO]] = {}
        self._lock, self.ended = threading.Lock(), False

    def write(self, line: Line) -> None:
        """Append a line to its log, and its time to the index; after `end`, do nothing."""
        with self._lock:
            if not self.ended:
                self._append(line)

    def _append(self, line: Line) -> None:
        path = self.into / _kept_at(line)
        if path not in self._open:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open[path] = path.open("ab"), path.with_name(f"{path.name}.idx").open("ab")
        if path not in self.paths:
            self.paths.add(path)
            self._note_rank(path, line)
        log, index = self._open[path]
        index.write(RECORD.pack(log.tell(), line.time))
        log.write(line.text + b"\n")

    def _note_rank(self, path: Path, line: Line) -> None:
        if line.rank is None:
            return
        record = path.parents[2] / "processes" / "0" / f"{path.suffix[1:]}.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"rank": line.rank}), encoding="utf-8")

    def let_go(self) -> None:
        """Close the files, until something is written again."""
        with self._lock:
            self._close()

    def end(self) -> None:
        """Write no more."""
        with self._lock:
            self.ended = True
            self._close()

    def _close(self) -> None:
        for pair in self._open.values():
            for file in pair:
                file.close()
        self._open = {}
