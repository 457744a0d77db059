"""Target `local`: the nodes of a job as process groups on this machine, node i at 127.0.0.(i+2).

The same artefacts, launcher and control file as on a host. Processes carry marks in their environment (see
processes.py) as containers carry labels, so what runs is always found, whatever became of the files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Literal

from jobctl.jobspec.deploy.apply.deployer import Failures, Start, Victim
from jobctl.jobspec.deploy.apply.generations import choose_generation
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host.devices import count_devices
from jobctl.jobspec.deploy.logs.files import Folder
from jobctl.jobspec.deploy.logs.reader import Logs
from jobctl.jobspec.deploy.model.control import NOTHING, Control, Image, Ledger, begun_alone, newest, role_of
from jobctl.jobspec.deploy.model.errors import DeployError, NothingToEnter
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.inventory import Reach
from jobctl.jobspec.deploy.model.liveness import Vitals
from jobctl.jobspec.deploy.model.log_lines import Selection
from jobctl.jobspec.deploy.model.observed import FULL, Observed, ObservedNode, parse_node, waits_for
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.store.archive import collect_logs
from jobctl.jobspec.deploy.store.control_files import read_control, write_generation, write_ledger
from jobctl.jobspec.deploy.store.events import Written
from jobctl.jobspec.deploy.store.files import is_full, read_json, write_atomic, write_json
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import break_lock, hold, read_holder
from jobctl.jobspec.deploy.targets.background import end_supervisor
from jobctl.jobspec.deploy.targets.local_feed import LocalFeed
from jobctl.jobspec.deploy.targets.local_services import LocalServices, script_hash
from jobctl.jobspec.deploy.transport.foreground import run_in_foreground
from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Generation, Node, Plan
from jobctl.jobspec.render.artefact import Artefact, render

HOST = "localhost"
START_TIMEOUT = 30.0  # seconds within which a started launcher reports
ENDING = 2.0  # seconds, beyond the grace of its processes, that a launcher takes to do as it is told
LOOK = 0.02  # seconds between two looks at what is waited for
ALREADY_RUNS = 75  # exit code of a launcher that found another one of its node


class Local:
    """The deployer of one job on this machine."""

    image: Image | None = None
    reach: Reach | None = None
    interval = 0.1  # reading the reports of a few nodes costs well under a millisecond

    def __init__(self, job: JobDir, plan: Plan | None = None) -> None:
        self.job, self.work = job, job.host
        self.tell: Callable[[str], None] = lambda text: None
        self.plan = plan or job.plan()
        self._services = LocalServices(self.work)
        self._starting: dict[int, subprocess.Popen[bytes]] = {}

    def where(self) -> tuple[str, ...]:
        """This machine."""
        return (HOST,)

    def reach_out(self) -> None:
        """There is nothing to connect to."""

    def count_devices(self, kind: str, hosts: Iterable[str]) -> tuple[Mapping[str, int], Failures]:
        """Return how many devices this machine has."""
        found = count_devices(kind)
        return (dict.fromkeys(hosts, found) if found else {}), {}

    def has_files(self) -> bool:
        """Say whether there is a work directory."""
        return self.work.exists()

    # Observing.

    def observe(self) -> Observed:
        """Read what runs now from the control file, the launchers' reports and the process table."""
        control = self.newest()
        nodes = tuple(self._observe_node(index, control) for index in self._known_nodes(control))
        supervised = bool(read_holder(self.job.supervisor_lock))
        services = tuple(self._services.observe())
        obstacles = {HOST: FULL} if is_full(self.work) else {}
        changing = self.job.is_changing()
        return Observed(
            control, nodes, supervised=supervised, services=services, obstacles=obstacles, changing=changing
        )

    def newest(self) -> Control:
        """Return generation and ledger."""
        reports = [read_json(path) for path in self.work.glob("node-*/report.json")]
        return newest([read_control(self.work), *map(begun_alone, reports)])

    def _known_nodes(self, control: Control) -> list[int]:
        folders = [path for path in self.work.glob("node-*") if path.is_dir()]
        found = {node for path in folders if (node := number_in(path.name[5:])) is not None}
        joined = {member.node for member in control.generation.members} if control.generation else set()
        return sorted(found | joined)

    def _observe_node(self, index: int, control: Control = NOTHING) -> ObservedNode:
        report = read_json(self.work / f"node-{index}" / "report.json")
        said = (report or {}).get("launcher")
        launcher = said if isinstance(said, dict) else {}
        pid = launcher.get("pid") if processes.alive(launcher.get("pid"), launcher.get("start_ticks")) else None
        artefact = processes.environment(pid).get(processes.ARTEFACT_MARK) if pid else None
        return parse_node(index, role_of(control, index), HOST, report, pid, artefact)

    # What is wanted.

    def artefacts(self, plan: Plan) -> Iterator[Artefact]:
        """Yield what belongs into the work directory: the same bytes that `render` writes."""
        for artefact in render(plan, first_generation(plan)):
            if artefact.path != "control.json":
                yield replace(artefact, path=artefact.path.removeprefix(f"{HOST}/"))

    def hashes(self, plan: Plan) -> dict[int, str]:
        """Return the hash of each node's artefact, and of the checkpoint directory, which no script here mentions."""
        found = {artefact.path: _hash(artefact.content, plan) for artefact in self.artefacts(plan)}
        return {node.index: found[_script(node.index)] for node in plan.nodes}

    def service_hashes(self, plan: Plan) -> dict[str, str]:
        """Return the hash of each service's script."""
        found = {artefact.path: artefact.content for artefact in self.artefacts(plan)}
        return {service.name: script_hash(found[f"{service.name}.sh"]) for service in plan.services}

    def spares(self, plan: Plan) -> dict[str, str]:
        """Return nothing: this machine is the only one."""
        return {}

    # Whose turn it is.

    def lock(self, command: str, *, break_it: bool = False) -> AbstractContextManager[None]:
        """Hold the job's lock while steps are applied."""
        if break_it:
            break_lock(self.job.lock)
        return hold(self.job.lock, command)

    @contextmanager
    def follow(self) -> Iterator[LocalFeed]:
        """Be the job's only supervisor: its launchers are answered."""
        with hold(self.job.supervisor_lock, "supervise", wait=0.0):
            feed = LocalFeed(self.work, HOST, Vitals(time.monotonic, token_hex(4)), self.observe)
            try:
                yield feed
            finally:
                feed.close()

    # Changing.

    def prepare(self, plan: Plan, start: Start) -> Failures:
        """Put the files of `plan` into the work directory; what runs is not touched by that."""
        self.plan = plan
        for artefact in self.artefacts(plan):
            write_atomic(self.work / artefact.path, artefact.content, artefact.mode)
        write_json(self.work / "environ.json", _environ(plan, start.environ), 0o600)
        secrets = self.work / "secrets" / "secrets.json"
        # What runs needs its secrets until the change is made.
        self.leave_secrets({**(read_json(secrets) or {} if self.job.is_changing() else {}), **start.secrets})
        if plan.checkpoint:
            Path(plan.checkpoint.dir).mkdir(parents=True, exist_ok=True)
        return {}

    def leave_secrets(self, secrets: Mapping[str, str]) -> None:
        """Leave no other secrets than these in the work directory."""
        path = self.work / "secrets" / "secrets.json"
        if secrets:
            write_json(path, dict(secrets), 0o600)
        else:
            path.unlink(missing_ok=True)

    def started_with(self) -> Start | None:
        """Return the environment and the secrets of the last `prepare`."""
        secrets = read_json(self.work / "secrets" / "secrets.json") or {}
        return Start(_recorded_environ(self.work), secrets)

    def homes(self, observed: Observed) -> tuple[str, ...]:
        """There is only this machine."""
        return ()

    def settle_in(self, plan: Plan, hosts: Iterable[str]) -> Failures:
        """There is only this machine."""
        return {}

    def engines(self, hosts: Iterable[str], patience: float) -> Failures:
        """There is none."""
        return {}

    def apply(self, steps: Sequence[Step]) -> Failures:
        """Carry out steps about nodes. Raises DeployError: where one node cannot start, none can."""
        for step in steps:
            if step.service is not None and self.plan is not None:
                self._services.apply(step, self.plan, _recorded_environ(self.work))
            if step.node is not None:
                self._apply(step, step.node)
        self._settle()
        return {}

    def _apply(self, step: Step, node: int) -> None:
        if step.kind in ("replace", "remove"):
            self._end_launcher(node, step.grace)
        if step.kind == "remove":
            shutil.rmtree(self.work / f"node-{node}", ignore_errors=True)
            (self.work / _script(node)).unlink(missing_ok=True)
        if step.kind in ("replace", "start"):
            self._start(node)

    def _start(self, node: int) -> None:
        processes.kill_marked(self.work, node)
        script, directory = self.work / _script(node), self.work / f"node-{node}"
        directory.mkdir(parents=True, exist_ok=True)
        self._announce(directory / "report.json")
        environ = _recorded_environ(self.work)
        environ[processes.WORK_MARK] = str(self.work)
        environ[processes.NODE_MARK] = str(node)
        environ[processes.ARTEFACT_MARK] = _hash(script.read_bytes(), self.plan)
        with (directory / "launcher.log").open("ab") as log:
            self._starting[node] = subprocess.Popen(
                ["sh", str(script)],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _announce(self, report: Path) -> None:
        """Say in a dead launcher's report that a new one is on its way; which generation it began, stays."""
        last = read_json(report)
        if last is not None:
            write_json(report, {**last, "state": "launching", "launcher": {}, "failure": None, "reason": None})

    def _settle(self) -> None:
        """Wait until every launcher that was started reports. Raises DeployError for those that died at once."""
        starting, self._starting = self._starting, {}
        deadline = time.monotonic() + START_TIMEOUT
        for node, process in starting.items():
            while not self._observe_node(node).alive:
                code = process.poll()
                if code not in (None, ALREADY_RUNS):
                    raise DeployError(f"the launcher of node {node} ended with code {code}", self._last_words(node))
                if time.monotonic() > deadline:
                    raise DeployError(f"the launcher of node {node} says nothing", self._last_words(node))
                time.sleep(0.01)

    def _last_words(self, node: int) -> str:
        path = self.work / f"node-{node}" / "launcher.log"
        lines = path.read_text(errors="replace").splitlines()[-5:] if path.exists() else []
        return "\n".join([f"{path} ends with:", *lines]) if lines else f"{path} is empty"

    def stop_processes(self, grace: float) -> None:
        """End all processes of the job, at the same time on all nodes; the launchers stay."""
        self.command("stop", grace)
        self._until(lambda node: node.state not in ("starting", "running"), grace)

    def _until(self, done: Callable[[ObservedNode], bool], grace: float) -> None:
        """Wait until `done` is true of every node that lives, as long as launchers take at most."""
        deadline = time.monotonic() + grace + ENDING
        while waited := [node for node in self.observe().nodes if node.alive and not done(node)]:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.tell(waits_for(waited, left - ENDING))
            time.sleep(LOOK)

    def _end_launcher(self, node: int, grace: float) -> None:
        """End the launcher of `node` and all its processes: SIGTERM, `grace` seconds, SIGKILL."""
        observed = self._observe_node(node)
        if observed.launcher is not None:
            processes.end(observed.launcher, processes.start_ticks(observed.launcher), grace + ENDING)
        processes.kill_marked(self.work, node)

    def begin(self, generation: Generation, ledger: Ledger, patience: float = 0.0) -> Failures:
        """Hand a generation to the launchers; the ledger goes first, see control.py. To look costs nothing here."""
        del patience
        self.keep(ledger)
        write_generation(self.work, generation)
        return {}

    def keep(self, ledger: Ledger) -> None:
        """Keep what recovery has to remember."""
        write_ledger(self.work, ledger)

    def command(self, verb: Literal["stop", "finish"], grace: float) -> None:
        """Tell all launchers to `stop` (and stay) or to `finish` (and exit)."""
        control = self.newest()
        if control.generation is not None:
            write_generation(self.work, replace(control.generation, command=verb, grace=grace))

    def next_generation(self, plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node]) -> Generation:
        """Return the generation after `last` (the first, if None) with a port that is free now. Raises DeployError."""
        ports = {node.index: self._observe_node(node.index).port for node in nodes}
        return choose_generation(plan, last, grace, nodes, port_is_free, "this machine", ports)

    def finish(self, grace: float) -> None:
        """End all processes and all launchers: SIGTERM, `grace` seconds, SIGKILL for whatever is left."""
        try:
            self.command("finish", grace)
        except OSError:  # the disk is full, and to take the job down makes room
            self._signal_launchers()
        self._until(lambda node: not node.alive, grace)
        processes.kill_marked(self.work)

    def _signal_launchers(self) -> None:
        for node in self.observe().nodes:
            if node.launcher is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(node.launcher, signal.SIGTERM)

    def take_down(self, grace: float) -> tuple[Path | None, Failures]:
        """End everything, keep the logs, and remove the work directory: artefacts, control file, secrets, reports."""
        end_supervisor(self.job)
        self.finish(grace)
        collected = collect_logs(self.work, self.job.history)
        for link in self.work.glob("node-*/scratch"):  # of launchers that were killed: see launcher.make_scratch
            if link.is_symlink() and link.readlink().name.startswith("jobctl-"):
                shutil.rmtree(link.readlink(), ignore_errors=True)
        shutil.rmtree(self.work, ignore_errors=True)
        return collected, {}

    # Looking around.

    def preflight(self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False) -> list[Finding]:
        """Look whether the devices are there and, where that matters or `deep`, whether the framework works."""
        from jobctl.jobspec.deploy.check.local import preflight

        if plan is None:
            return []
        return preflight(HOST, plan, _process_environ(plan, plan.nodes[0], Start(os.environ, {})), deep=deep)

    def exists(self, path: str) -> bool:
        """Say whether there is `path` on this machine."""
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        """Make a directory on this machine."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def logs(self, selection: Selection, last: int | None = None) -> Logs | None:
        """Return what reads the chosen logs in the work directory."""
        return Logs(Folder(self.work), selection, last) if self.work.exists() else None

    def events(self) -> Written:
        """Return what reads this machine's history."""
        return Written(self.job.events)

    @property
    def failures(self) -> Failures:
        """This machine always answers."""
        return {}

    def enter(self, node: int | str, argv: Sequence[str]) -> int:
        """Run a command with the environment of a node's first process, or of a service, in its directory."""
        pid = self._first_process(node) if isinstance(node, int) else self._services.pid(node)
        return run_in_foreground(argv, processes.environment(pid), processes.working_directory(pid))

    def show_log(self, service: str, last: int | None, *, follow: bool) -> int:
        """Print a service's log."""
        path = self._services.log(service)
        lines = "+1" if last is None else str(last)
        return run_in_foreground(["tail", "-n", lines, *(["-F"] * follow), "--", str(path)], os.environ, None)

    def _first_process(self, node: int) -> int:
        """Return the pid of the first running process of a node. Raises DeployError if it has none."""
        found = self.observe().node(node)
        if found is None:
            raise DeployError(
                f"job `{self.job.name}` has no node {node}", f"`jobctl status {self.job.name}` shows its nodes"
            )
        running = [process.pid for process in found.processes if process.state == "running" and process.pid]
        if not running:
            raise NothingToEnter(
                f"node {node} is {found.state}: it has no running process", "`jobctl run` needs no running job"
            )
        return running[0]

    def strike(self, node: int, what: Victim) -> None:
        """SIGKILL the first process of a node, or its launcher with all its processes."""
        if what == "host":
            raise DeployError("target `local` has only this machine, which cannot be lost", "a drill on hosts can")
        if what == "container":
            processes.kill_marked(self.work, node)
        else:
            os.kill(self._first_process(node), signal.SIGKILL)

    def look_around(self, plan: Plan, node: Node, start: Start, argv: Sequence[str]) -> int:
        """Run a command with the environment and in the directory that the processes of `node` would have."""
        return run_in_foreground(argv, _process_environ(plan, node, start), node.launch.workdir)

    def fetch(self, into: Path) -> dict[str, int]:
        """Copy logs and outputs."""
        counts = {"logs": self._fetch_logs(into), "outputs": self._fetch_outputs(into)}
        return {what: count for what, count in counts.items() if count}

    def _fetch_logs(self, into: Path) -> int:
        roots = [self.work] if self.work.exists() else sorted(self.job.history.glob("*"))[-1:]
        found = [path for root in roots for path in sorted(root.glob("node-*/logs"))]
        for path in found:
            shutil.copytree(path, into / HOST / path.parent.name / "logs", dirs_exist_ok=True)
        return sum(file.is_file() for path in found for file in path.rglob("*"))

    def _fetch_outputs(self, into: Path) -> int:
        if self.plan is None or not self.plan.nodes[0].launch.workdir:
            return 0
        workdir = Path(self.plan.nodes[0].launch.workdir)
        found = [output for output in self.plan.outputs if (workdir / output).exists()]
        for output in found:
            source, to = workdir / output, into / HOST / "outputs" / output
            if source.is_dir():
                shutil.copytree(source, to, dirs_exist_ok=True)
            else:
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to)
        return len(found)

    def close(self) -> None:
        """There is nothing to let go of."""


def _hash(script: bytes, plan: Plan | None) -> str:
    checkpoint = plan.checkpoint.dir if plan and plan.checkpoint else ""
    return sha256(script + b"\0" + os.fsencode(checkpoint)).hexdigest()[:16]


def _recorded_environ(work: Path) -> dict[str, str]:
    """Return the environment that `up` was called with."""
    return dict(read_json(work / "environ.json") or os.environ)


def _script(node: int) -> str:
    return f"node-{node}.sh"


def _environ(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """Return `up`'s environment, with the interpreter that has the framework first on PATH.

    That is the one that runs jobctl, if it can import the framework (a virtual environment need not be activated
    then); otherwise the PATH is left alone, as for a jobctl installed by itself with pipx.
    """
    result = {name: value for name, value in environ.items() if name not in _OWN}
    if find_spec(framework(plan.framework).module) is not None:
        result["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", os.defpath)])
    return result


def _process_environ(plan: Plan, node: Node, start: Start) -> dict[str, str]:
    """Return what a process of `node` has in its environment, less what only a generation knows."""
    job = {"JOBCTL_JOB": plan.job, "JOBCTL_NODE": str(node.index)}
    checkpoint = {"JOBCTL_CHECKPOINT_DIR": plan.checkpoint.dir} if plan.checkpoint else {}
    static = {name: value for name, value in node.launch.env if isinstance(value, str)}
    return {
        **_environ(plan, start.environ),
        **dict(node.container.env),
        **static,
        **checkpoint,
        **job,
        **start.secrets,
    }


# A job started from within a job (or from a test) is not part of it.
_OWN = (processes.WORK_MARK, processes.NODE_MARK, processes.ARTEFACT_MARK, "JOBCTL_LAUNCH", "JOBCTL_JOB")


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
