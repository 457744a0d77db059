"""Launchers on this machine: processes known by marks in their environment (see processes.py), and by their reports."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import NOTHING, Control, role_of
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.observed import ObservedNode, launching, parse_node
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.deploy.targets.ending import ENDING
from jobctl.jobspec.deploy.targets.local_environ import recorded_environ
from jobctl.jobspec.deploy.targets.local_services import HOST
from jobctl.jobspec.plan.types import Plan

START_TIMEOUT = 30.0  # seconds within which a started launcher reports
ALREADY_RUNS = 75  # exit code of a launcher that found another one of its node


class LocalLaunchers:
    """The launchers below the work directory of one job."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._starting: dict[int, subprocess.Popen[bytes]] = {}

    def observe(self, control: Control) -> Iterator[ObservedNode]:
        """Yield how each node does that has a directory or takes part."""
        folders = [path for path in self.work.glob("node-*") if path.is_dir()]
        found = {node for path in folders if (node := number_in(path.name[5:])) is not None}
        joined = {member.node for member in control.generation.members} if control.generation else set()
        yield from (self.observe_node(node, control) for node in sorted(found | joined))

    def observe_node(self, index: int, control: Control = NOTHING) -> ObservedNode:
        """Return how a node does, by its report and the process table."""
        report = read_json(self.work / f"node-{index}" / "report.json")
        said = (report or {}).get("launcher")
        launcher = said if isinstance(said, dict) else {}
        pid = launcher.get("pid") if processes.alive(launcher.get("pid"), launcher.get("start_ticks")) else None
        artefact = processes.environment(pid).get(processes.ARTEFACT_MARK) if pid else None
        return parse_node(index, role_of(control, index), HOST, report, pid, artefact)

    def apply(self, step: Step, node: int, plan: Plan | None) -> None:
        """Carry out a step about a node; `wait_for_reports` waits for all that were started."""
        if step.kind in ("replace", "remove"):
            self._end(node, step.grace)
        if step.kind == "remove":
            shutil.rmtree(self.work / f"node-{node}", ignore_errors=True)
            (self.work / script_name(node)).unlink(missing_ok=True)
        if step.kind in ("replace", "start"):
            self._start(node, plan)

    def _start(self, node: int, plan: Plan | None) -> None:
        """Start the launcher of a node, after all that an earlier one has left."""
        processes.kill_marked(self.work, node)
        script, directory = self.work / script_name(node), self.work / f"node-{node}"
        directory.mkdir(parents=True, exist_ok=True)
        last = read_json(directory / "report.json")
        if last is not None:
            write_json(directory / "report.json", launching(last))
        environ = recorded_environ(self.work)
        environ[processes.WORK_MARK] = str(self.work)
        environ[processes.NODE_MARK] = str(node)
        environ[processes.ARTEFACT_MARK] = launcher_hash(script.read_bytes(), plan)
        with (directory / "launcher.log").open("ab") as log:
            self._starting[node] = subprocess.Popen(
                ["sh", str(script)],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_reports(self) -> None:
        """Wait until every launcher that was started reports. Raises DeployError for those that died at once."""
        starting, self._starting = self._starting, {}
        deadline = time.monotonic() + START_TIMEOUT
        for node, process in starting.items():
            while not self.observe_node(node).alive:
                code = process.poll()
                if code not in (None, ALREADY_RUNS):
                    raise DeployError(f"the launcher of node {node} ended with code {code}", self._last_words(node))
                if time.monotonic() > deadline:
                    raise DeployError(f"the launcher of node {node} says nothing", self._last_words(node))
                time.sleep(0.01)

    def _last_words(self, node: int) -> str:
        """Return what the launcher of a node has printed last."""
        path = self.work / f"node-{node}" / "launcher.log"
        lines = path.read_text(errors="replace").splitlines()[-5:] if path.exists() else []
        return "\n".join([f"{path} ends with:", *lines]) if lines else f"{path} is empty"

    def _end(self, node: int, grace: float) -> None:
        """End the launcher of `node` and all its processes: SIGTERM, `grace` seconds, SIGKILL."""
        launcher = self.observe_node(node).launcher
        if launcher is not None:
            processes.end(launcher, processes.start_ticks(launcher), grace + ENDING)
        processes.kill_marked(self.work, node)

    def terminate(self, control: Control) -> None:
        """SIGTERM all launchers: they end their processes and themselves."""
        for node in self.observe(control):
            if node.launcher is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(node.launcher, signal.SIGTERM)

    def remove_scratch(self) -> None:
        """Remove the scratch directories of launchers that were killed: see make_scratch in launcher/scratch.py."""
        for link in self.work.glob("node-*/scratch"):
            if link.is_symlink() and link.readlink().name.startswith("jobctl-"):
                shutil.rmtree(link.readlink(), ignore_errors=True)


def script_name(node: int) -> str:
    """Return the name of the script that starts a node's launcher."""
    return f"node-{node}.sh"


def launcher_hash(script: bytes, plan: Plan | None) -> str:
    """Return what identifies a launcher: its script, and the checkpoint directory, which no script here mentions."""
    checkpoint = plan.checkpoint.dir if plan and plan.checkpoint else ""
    return sha256(script + b"\0" + os.fsencode(checkpoint)).hexdigest()[:16]


def port_is_free(host: str, port: int) -> bool:
    """Say whether a server could listen on `port`: rendezvous stores bind to all addresses."""
    del host  # there is but one
    for family, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((anywhere, port))
        except OSError as error:
            if family == socket.AF_INET or error.errno == errno.EADDRINUSE:
                return False
    return True
