"""Launchers on this machine: processes known by marks in their environment (see processes.py), and by their reports."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.report_reader import launching
from jobctl.jobspec.deploy.model.untrusted import Json, number_in
from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.deploy.targets.ending import LAUNCHER_END_MARGIN
from jobctl.jobspec.deploy.targets.local.environ import recorded_environ
from jobctl.jobspec.deploy.targets.local.processes import folder_of, last_words, script_of, spawn
from jobctl.jobspec.launcher.recovery.control_file import read_order
from jobctl.jobspec.launcher.run.scratch import remove_shared
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.shell import local_hash

KILLS = 3  # times that a launcher is started again which somebody kills as it starts
ALREADY_RUNS = 75  # exit code of a launcher that found another one of its node


class LocalLaunchers:
    """The launchers below the work directory of one job."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._starting: dict[int, tuple[subprocess.Popen[bytes], Plan | None]] = {}
        self._kills: dict[int, int] = {}  # how often somebody has killed the one that was started last

    def nodes(self) -> frozenset[int]:
        """Return the nodes that have a directory."""
        names = (path.name[5:] for path in self.work.glob("node-*") if path.is_dir())
        return frozenset(node for name in names if (node := number_in(name)) is not None)

    def report(self, node: int) -> Json | None:
        """Return what the launcher of a node has reported."""
        return read_json(folder_of(self.work, node) / "report.json")

    def seen(self, reports: Mapping[int, Json]) -> Iterator[SeenContainer]:
        """Yield the launchers that live, of those that have made `reports`. Which role they have, only a generation knows."""
        for node, report in sorted(reports.items()):
            pid = launcher_in(report)
            if pid is not None:
                mark = processes.environment(pid).get(processes.ARTEFACT_MARK)
                artefact = ArtefactId(mark) if mark is not None else None
                stopped = any(map(processes.is_stopped, [pid, *processes.children(pid)]))  # its guard, or itself
                yield SeenContainer(node, "", "", running=True, artefact=artefact, owner=None, pid=pid, paused=stopped)

    def start(self, node: int, plan: Plan | None) -> None:
        """Start the launcher of a node, after all that an earlier one has left."""
        self._kills[node] = 0
        self._start(node, plan)

    def _start(self, node: int, plan: Plan | None) -> None:
        processes.kill_marked(self.work, node)
        directory = folder_of(self.work, node)
        directory.mkdir(parents=True, exist_ok=True)
        last = self.report(node)
        if last is not None:
            write_json(directory / "report.json", launching(last))
        artefact = local_hash(script_of(self.work, node).read_bytes(), plan)
        environ = {**recorded_environ(self.work), processes.ARTEFACT_MARK: artefact}
        self._starting[node] = spawn(self.work, node, directory / "launcher.log", environ), plan

    def check(self, node: int) -> None:
        """Start a launcher again that was killed as it started. Raises DeployError if it has ended by itself, or too often."""
        process, plan = self._starting.get(node, (None, None))
        code = process.poll() if process is not None else None
        if code in (None, ALREADY_RUNS):
            return
        if code is not None and code < 0 and self._kills[node] < KILLS:  # a signal comes from somebody else
            self._kills[node] += 1
            self._start(node, plan)
            return
        raise DeployError(f"the launcher of node {node} ended with code {code}", self.last_words(node))

    def last_words(self, node: int) -> str:
        """Return what the launcher of a node has printed last."""
        return last_words(folder_of(self.work, node) / "launcher.log", 5)

    def end(self, node: int, grace: float) -> None:
        """End the launcher of a node and all its processes: SIGTERM, `grace` seconds, SIGKILL."""
        launcher = launcher_in(self.report(node) or {})
        if launcher is not None:
            processes.end(launcher, processes.start_ticks(launcher), grace + LAUNCHER_END_MARGIN)
        processes.kill_marked(self.work, node)

    def terminate(self) -> None:
        """SIGTERM all launchers: they end their processes and themselves."""
        for node in self.nodes():
            launcher = launcher_in(self.report(node) or {})
            if launcher is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(launcher, signal.SIGTERM)

    def remove_scratch(self) -> None:
        """Remove the folders that launchers have made elsewhere, and that remain where they were killed."""
        order, _ = read_order(str(self.work / "run" / "control.json"))
        if order is not None:
            remove_shared(order, str(folder_of(self.work, 0)))
        for link in self.work.glob("node-*/scratch"):
            if link.is_symlink() and link.readlink().name.startswith("jobctl-"):
                shutil.rmtree(link.readlink(), ignore_errors=True)


def launcher_in(report: Json) -> int | None:
    """Return the pid of the launcher that has made a report, None if it is gone."""
    said = report.get("launcher")
    if not isinstance(said, dict) or not processes.alive(said.get("pid"), said.get("start_ticks")):
        return None
    return int(said["pid"])
