"""What the page of `jobctl ui` costs with 64 nodes of 8 ranks, a million lines of logs, and a week of history.

    python benchmarks/ui.py [--nodes 64] [--lines 1000000] [--looks 30] [--seconds 60]

The server is the real one, in a process of its own; the job is a record of one: the files of its logs and of its history
are there, its nodes and devices are made up. First the server is asked as a page does, while as many lines again are
written; then Chromium shows the page (without Chromium that part is left out).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import Pipe, Process
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from jobctl.jobspec.deploy.logs.files import Folder
from jobctl.jobspec.deploy.logs.reader import Logs
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, ObservedProcess
from jobctl.jobspec.deploy.model.sample import DeviceSample, HostSample
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets import sampling
from jobctl.jobspec.operations.inspect.listing import KnownJob, KnownJobs
from jobctl.jobspec.operations.serve.ui_access import PageAccess
from jobctl.jobspec.operations.serve.ui_data import UiData
from jobctl.jobspec.operations.serve.ui_server import UiServer
from tests.tools.ui_client import UiClient

RANKS = 8
JOB = "large"
WEEK = 7 * 86400
FIGURES = {"LayoutDuration": "layout", "TaskDuration": "all of its work"}


class Job(KnownJobs):
    """One job of many nodes, which make a step every time that somebody looks."""

    def __init__(self, directory: JobDir, nodes: int) -> None:
        super().__init__()
        self.directory, self.nodes, self.step = directory, nodes, 1_000_000
        self.known: Any = SimpleNamespace(
            job=directory,
            plan=None,
            failures={},
            interval=0.5,
            observe=self.observe,
            logs=self.logs,
            close=lambda: None,
        )

    def directories(self) -> list[JobDir]:
        """Return the one job."""
        return [self.directory]

    def handle(self, directory: JobDir) -> Any:
        """Return what it is looked at through."""
        return self.known

    def look(self, directory: JobDir) -> KnownJob:
        """Return how it is."""
        return KnownJob(JOB, {"target": "compose"}, self.known, self.observe())

    def observe(self) -> Observed:
        """Return its nodes, one step farther."""
        self.step += 1
        nodes = tuple(
            ObservedNode(
                node, "trainer", f"gpu{node:03}", "running", launcher=1, progress=self.step, processes=_processes(node)
            )
            for node in range(self.nodes)
        )
        return Observed(NOTHING, nodes, supervised=True, verdict=("running", None))

    def logs(self, selection: Any, last: int | None) -> Logs:
        """Return what reads its logs."""
        return Logs(Folder(self.directory.host), selection, last)


def _processes(node: int) -> tuple[ObservedProcess, ...]:
    return tuple(
        ObservedProcess(node * RANKS + rank, rank, "running", 1000 + rank, None, f"gpu:{rank}") for rank in range(RANKS)
    )


def sample(handle: Any, hosts: Any, samplers: Any) -> Mapping[str, HostSample]:
    """Return made-up samples of all devices."""
    gib = float(2**30)
    return {
        host: HostSample(
            {},
            None,
            None,
            None,
            tuple(DeviceSample(f"gpu:{n}", "H100", random.random(), 60 * gib, 80 * gib) for n in range(RANKS)),
        )
        for host in hosts
    }


class Logfiles:
    """The logs of all ranks, which grow."""

    def __init__(self, root: Path, nodes: int) -> None:
        self.paths = []
        for node in range(nodes):
            logs, processes = (root / f"node-{node}" / kind / "1" for kind in ("logs", "processes"))
            logs.mkdir(parents=True)
            processes.mkdir(parents=True)
            for rank in range(RANKS):
                (processes / f"{rank}.json").write_text(json.dumps({"rank": node * RANKS + rank}))
                self.paths.append(logs / f"workerlog.{rank}")
        self.written = 0

    def write(self, lines: int) -> None:
        """Append so many lines, the same number to each log."""
        each = max(1, lines // len(self.paths))
        now = time.time()
        text = b"".join(
            b"step %d loss 2.3456 lr 0.0003 grad 1.02 tokens/s 51234 allocated 61.2 GiB\n" % (self.written + n)
            for n in range(each)
        )
        self.written += each
        for path in self.paths:
            with path.open("ab") as log, path.with_name(f"{path.name}.idx").open("ab") as index:
                index.write(struct.pack("<Qd", log.tell(), now))
                log.write(text)


def history(directory: JobDir) -> None:
    """Write what a supervisor has written in a week: steps every five seconds, and a failure an hour."""
    begin = time.time() - WEEK
    told: list[dict[str, Any]] = [{"time": begin, "event": "up", "message": "up", "framework": "torch"}]
    for number in range(WEEK // 3600):
        at = begin + 10 + 3600 * number
        hosts = {str(node): f"gpu{node:03}" for node in range(64)}
        begun = {"generation": number + 1, "cause": "x", "members": list(range(64)), "hosts": hosts}
        told.append({"time": at, "event": "generation", "message": f"generation {number + 1} begins", **begun})
        for node in range(64):
            state = {"node": node, "host": f"gpu{node:03}", "state": "running", "generation": number + 1}
            told.append({"time": at + 20, "event": "node", "message": f"node {node} runs", **state})
        tail = [f"line {n}" for n in range(20)]
        failed = {"node": 7, "rank": 57, "progress": 700 * (number + 1), "tail": tail, "log": "workerlog.1"}
        told.append({"time": at + 3580, "event": "failure", "message": "node 7: rank 57 was killed", **failed})
    directory.events.write_text("".join(json.dumps(one) + "\n" for one in told))
    with directory.progress.open("w") as file:
        for number in range(WEEK // 5):
            at = begin + 5 * number
            file.write(json.dumps({"at": at, "generation": 1 + 5 * number // 3600, "step": number}) + "\n")


def serve(state: Path, nodes: int, told: Any) -> None:
    """Serve the page until the process is killed."""
    os.environ["JOBCTL_STATE_DIR"] = str(state)
    sampling.sample_hosts = sample  # type: ignore[assignment]
    data = UiData(Job(JobDir(state / "jobs" / JOB), nodes))
    with UiServer(("127.0.0.1", 0), data, PageAccess("t" * 43)) as server:
        told.send(server.url)
        server.serve_forever()


@contextmanager
def served(state: Path, nodes: int) -> Iterator[tuple[str, psutil.Process]]:
    """Run the server; yields its address and its process."""
    here, there = Pipe()
    process = Process(target=serve, args=(state, nodes, there), daemon=True)
    process.start()
    try:
        yield here.recv(), psutil.Process(process.pid)
    finally:
        process.kill()
        process.join()


def megabytes(process: psutil.Process) -> float:
    """Return how much memory a process has now."""
    return float(process.memory_info().rss) / 1e6


class Measured:
    """How long requests of one kind took, and how large the answers were."""

    def __init__(self, name: str, client: UiClient) -> None:
        self.name, self.client = name, client
        self.seconds: list[float] = []
        self.bytes: list[int] = []

    def ask(self, path: str, **query: str) -> Any:
        """Ask the server once."""
        begun = time.perf_counter()
        found = self.client.data(path, **query)
        self.seconds.append(time.perf_counter() - begun)
        self.bytes.append(len(json.dumps(found)))
        return found

    def __str__(self) -> str:
        worst = f"worst {1000 * max(self.seconds):.0f} ms"
        return f"{self.name:34} {1000 * median(self.seconds):7.0f} ms  {worst:15} {median(self.bytes) / 1e3:8.0f} kB"


def look_on(url: str, process: psutil.Process, logs: Logfiles, lines: int, looks: int) -> None:
    """Ask as a page does, while as many lines are written again."""
    client = UiClient(url)
    client.meet()
    print(f"server with nothing asked          {megabytes(process):7.0f} MB")
    first = Measured("first look: job", client)
    job = first.ask("/api/job", job=JOB)
    opened = Measured("first look: logs", client)
    found = opened.ask("/api/logs", job=JOB)
    kinds = [Measured(f"later looks: {name}", client) for name in ("jobs", "job", "logs", "logs with a new filter")]
    every, one, more, other = kinds
    spent = process.cpu_times()
    for number in range(looks):
        logs.write(lines // looks)
        time.sleep(max(0.0, 1.1))  # a look within a second of the last one costs nothing
        every.ask("/api/jobs")
        job = one.ask("/api/job", job=JOB, since=str(job["samples"][-1]["number"]), story=_version(job))
        found = more.ask("/api/logs", job=JOB, since=found["at"])
        other.ask("/api/logs", job=JOB, text=f"step {number}")
    now = process.cpu_times()
    for kind in (first, opened, *kinds):
        print(kind)
    print(
        f"CPU of the server for each look    {1000 * (now.user + now.system - spent.user - spent.system) / looks:7.0f} ms"
    )
    print(f"server after {looks} looks              {megabytes(process):7.0f} MB")


_versions: list[str] = [""]


def _version(job: Mapping[str, Any]) -> str:
    """Return the version of the story that a page has by now."""
    if job["story"] is not None:
        _versions[0] = job["story"]["version"]
    return _versions[0]


def show(url: str, process: psutil.Process, logs: Logfiles, seconds: int, scratch: Path) -> None:
    """Let Chromium show the page for a while, and print what that costs."""
    from tests.tools.devtools import browser

    with browser(scratch / "profile") as new:
        page = new()
        page.call("Performance.enable")
        page.size(1100, 1300)
        begun = time.perf_counter()
        page.open(url)
        page.shows("#logs", "step")
        print(f"page until all of it is shown      {time.perf_counter() - begun:7.1f} s")
        before, spent, heaps = _figures(page), process.cpu_times(), []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(2)
            logs.write(20_000)
            page.call("HeapProfiler.collectGarbage")
            heaps.append(page.call("Runtime.getHeapUsage")["usedSize"] / 1e6)
        after, now = _figures(page), process.cpu_times()
        for name, meaning in FIGURES.items():
            print(f"page: {meaning:28} {100 * (after[name] - before[name]) / seconds:7.1f} % of a core")
        print(f"page: heap at first, at the end    {heaps[0]:7.1f} MB {heaps[-1]:.1f} MB")
        busy = now.user + now.system - spent.user - spent.system
        print(
            f"server while the page is shown     {100 * busy / seconds:7.1f} % of a core, {megabytes(process):.0f} MB"
        )
        print(f"nodes of the document              {page.run('document.querySelectorAll(`*`).length'):7}")


def _figures(page: Any) -> dict[str, float]:
    return {one["name"]: one["value"] for one in page.call("Performance.getMetrics")["metrics"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines that are there, and that are written again")
    parser.add_argument("--looks", type=int, default=30)
    parser.add_argument("--seconds", type=int, default=60, help="for how long Chromium shows the page")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with TemporaryDirectory(prefix="jobctl-ui-") as name:
        state = Path(name)
        directory = JobDir(state / "jobs" / JOB)
        directory.create()
        (directory.root / "job.json").write_text(json.dumps({"target": "compose"}))
        history(directory)
        logs = Logfiles(directory.host, asked.nodes)
        logs.write(asked.lines)
        with served(state, asked.nodes) as (url, process):
            look_on(url, process, logs, asked.lines, asked.looks)
            if shutil.which("chromium"):
                show(url, process, logs, asked.seconds, state)
            else:
                print("no Chromium here")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
