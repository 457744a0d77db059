"""Into what runs on hosts: commands in containers, what services print, and faults that drills play."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import Any

from jobctl.jobspec.deploy.apply.deployer import BLACKOUT, FaultTarget
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS, python
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.errors import UNHEARD, DeployError, HostError, NothingToEnter
from jobctl.jobspec.deploy.model.host_state import control_of
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.untrusted import objects
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet
from jobctl.jobspec.deploy.targets.node_ports import home_of, open_port
from jobctl.jobspec.deploy.targets.oneoff import terminal_flags
from jobctl.jobspec.deploy.transport.base import RunningCommand, TerminalSize, checked
from jobctl.jobspec.deploy.transport.ending import ended_by_signals

SESSION_MARK = "JOBCTL_SESSION"  # a variable by which the command of a session is found again


def enter(fleet: HostFleet, node: int | str, argv: Sequence[str]) -> int:
    """Run a command inside of a node's or a service's container; it ends where this process does, or nobody reads any more."""
    host_job, container = _running(fleet, node)
    within = [*host_job.docker, "exec", container.id, *SCRIPTS.argv("exists", argv[0])]
    mark = _new_mark()
    try:
        with ended_by_signals():
            command = [*host_job.docker, "exec", *terminal_flags(), "-e", mark, container.id, *argv]
            code = host_job.transport.interact(command)
        if code > 128:  # a signal may have ended the program that started it, and not the command
            _hang_up(host_job, container, _python_of(fleet, node), mark, "group")
    except HostError:  # its connection is lost
        raise
    except BaseException:
        _hang_up(host_job, container, _python_of(fleet, node), mark, "group")
        raise
    # Some versions of Docker end with 126 for a command that is not there, too.
    return 127 if code == 126 and host_job.transport.run(within).code == 127 else code


def _new_mark() -> str:
    return f"{SESSION_MARK}={token_hex(8)}"


def _python_of(fleet: HostFleet, node: int | str) -> str:
    """Return the interpreter in the container of a node."""
    nodes = fleet.plan.nodes if fleet.plan else ()
    return next((one.container.python for one in nodes if one.index == node), "python3")


def _hang_up(host_job: HostJob, container: SeenContainer, interpreter: str, *what: str) -> None:
    """End the command with a mark: the engine lets it run on when the program that started it has gone."""
    kill = [interpreter, "-c", python("hang_up"), *what]
    with contextlib.suppress(HostError):  # its connection may be lost as well
        host_job.transport.run([*host_job.docker, "exec", container.id, *kill])


class ContainerSession:
    """A node's container, entered by the host's own `docker exec`, with a terminal of the host's where one is asked for."""

    def __init__(self, fleet: HostFleet, node: int) -> None:
        self._node = node
        self._host_job, self._container = _running(fleet, node)
        self._home = home_of(node, control_of(fleet.seen), fleet.plan)
        self.python = _python_of(fleet, node)

    def start(self, argv: Sequence[str], environ: Mapping[str, str], terminal: TerminalSize | None) -> RunningCommand:
        """Start a command in the container."""
        mark = _new_mark()
        kind = {"TERM": terminal.kind} if terminal else {}
        variables = [f"{name}={value}" for name, value in {**environ, **kind}.items()]
        options = [part for variable in (*variables, mark) for part in ("-e", variable)]
        flags = ["-i", "-t"] if terminal else ["-i"]
        within = [*self._host_job.docker, "exec", *flags, *options, self._container.id, *argv]
        started = self._host_job.transport.start(within, terminal)
        return _Exec(started, lambda: _hang_up(self._host_job, self._container, self.python, mark))

    def dial(self, port: int) -> Any:
        """Connect to a port of the host, whose network the container has."""
        return open_port(self._host_job.transport, self._home, port)

    def why_gone(self) -> str | None:
        """Ask the engine whether the container runs, and so whether the connection to the host is there at all."""
        ask = [*self._host_job.docker, "inspect", "--type=container", "-f", "{{.State.Running}}", self._container.id]
        try:
            told = self._host_job.transport.run(ask)
        except HostError as error:
            return error.message if error.code in UNHEARD - {"silent"} else None
        runs = told.out.strip() != b"false" and b"no such" not in told.err.lower()
        return None if runs else f"the container of node {self._node} on {self._host_job.host.name} has ended"


class _Exec:
    """A command in a container. To close it before it has ended ends it."""

    def __init__(self, command: RunningCommand, hang_up: Callable[[], None]) -> None:
        self._hang_up, self._ended = hang_up, False
        self._command = command
        self.send, self.end_input, self.resize = command.send, command.end_input, command.resize
        self.output, self.errors = command.output, command.errors

    def wait(self) -> int:
        """Return its exit code when it has ended."""
        code = self._command.wait()
        self._ended = True
        return code

    def close(self) -> None:
        """Let go of it, and have it hang up unless it has ended."""
        ended = self._ended  # to close it looks like its end
        self._command.close()
        if not ended:
            self._hang_up()


def show_log(fleet: HostFleet, service: str, last: int | None, *, follow: bool) -> int:
    """Print what a service's container has printed, whether it runs or not."""
    fleet.observe()
    for host, seen in fleet.seen.items():
        for container in seen.containers:
            if container.service == service:
                host_job = fleet.host_jobs[host]
                how = ["--follow"] * follow + ([] if last is None else ["--tail", str(last)])
                both = ["sh", "-c", 'exec "$@" 2>&1', "sh"]  # it prints on either stream
                with ended_by_signals():
                    return host_job.transport.interact([*both, *host_job.docker, "logs", *how, container.id])
    raise DeployError(f"{service} has no container", f"`jobctl status {fleet.job.name}` shows what runs")


def inject_fault(fleet: HostFleet, node: int, what: FaultTarget) -> None:
    """SIGKILL the first process of a node, or its container, or play that its host is lost."""
    host_job, container = _running(fleet, node)
    if what == "host":
        generation = control_of(fleet.seen).generation
        seconds = BLACKOUT + (generation.host_timeout if generation else 0.0)
        argv = SCRIPTS.argv("cut", str(host_job.work), f"{seconds:.0f}")
        checked(host_job.transport, argv, "play that it is lost")
        return
    if what == "container":
        host_job.containers.kill([container])
        return
    report = fleet.seen[host_job.host.name].reports.get(node) or {}
    pids = [process.get("pid") for process in objects(report.get("processes")) if process.get("state") == "running"]
    kill = [_python_of(fleet, node), "-c", "import os, sys; os.kill(int(sys.argv[1]), 9)", str(pids[0] if pids else "")]
    checked(host_job.transport, [*host_job.docker, "exec", container.id, *kill], f"kill a process of node {node}")


def _running(fleet: HostFleet, node: int | str) -> tuple[HostJob, SeenContainer]:
    """Return where the container of a node or service runs. Raises DeployError if it does not."""
    observed = fleet.observe()
    home = next((one.host for one in observed.nodes if one.node == node), None)
    # Where it was before it moved, its engine may have started a container of it again.
    for host, seen in sorted(fleet.seen.items(), key=lambda found: found[0] != home):
        for container in seen.containers:
            if node in (container.node, container.service) and container.running:
                return fleet.host_jobs[host], container
    raise _not_running(fleet, node, observed)


def _not_running(fleet: HostFleet, node: int | str, observed: Observed) -> DeployError:
    """Return why nothing of a node or service can be entered."""
    what = f"node {node}" if isinstance(node, int) else node
    hint = f"`jobctl status {fleet.job.name}` shows its nodes"
    homes = {n.host for n in observed.nodes if n.node == node} | {s.host for s in observed.services if s.name == node}
    for host, error in fleet.down.items():
        if host in homes or not homes:  # where it is not known who has it, anybody may
            cause, may = getattr(error, "cause", error.message), "is" if homes else "may be"
            return HostError(host, error.code or "unreachable", f"{what} {may} there: {cause}", error.hint)
    if not homes and observed.control.generation is None:
        return NothingToEnter(f"{what} is on no host: the job does not run", "`jobctl up` starts it")
    if not homes:
        return DeployError(f"job `{fleet.job.name}` has no {what}", hint)
    return NothingToEnter(f"{what} has no running container", hint)
