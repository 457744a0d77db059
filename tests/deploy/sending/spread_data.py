"""Hosts that hand data on, which this machine plays, and how many bytes this machine sends them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import handing_on
from jobctl.jobspec.deploy.host.scripts import HAND_ON, MARK, joined
from jobctl.jobspec.deploy.sending import data_spread
from jobctl.jobspec.deploy.sending.data_spread import DataSpread
from jobctl.jobspec.deploy.sending.send_data import DataPackage
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from tests.deploy.sending.sent_data import contents, package

HOSTS = ("h1", "h2", "h3")
PROGRAM = MARK


class Remote(LocalTransport):
    """A host of its own, as far as data can see, which counts the bytes that it is sent."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.sent = 0
        self.has_python = True
        self.note: Callable[[int], None] = lambda size: None  # of what comes from here, and not from host to host
        self.programs: list[Any] = []  # that handed on there

    def run(self, argv: Sequence[str], stdin: Any = b"", **how: Any) -> Result:
        data = b"".join([stdin] if isinstance(stdin, bytes) else stdin)
        self.sent += len(data)
        self.note(len(data))
        return super().run(argv, data, **how)

    def start(self, argv: Sequence[str], terminal: Any = None) -> Any:
        if argv[0] == "python3" and not self.has_python:
            argv = ["sh", "-c", "echo 'python3: not found' >&2; exit 127"]
        command = super().start(argv, terminal)
        send = command.send

        def counted(data: bytes) -> None:
            send(data)
            self.sent += len(data)

        command.send = counted  # type: ignore[method-assign]
        if PROGRAM in argv[-1]:
            self.programs.append(command)
        return command


class Hosts:
    """Folders of this machine that are hosts of a job, and data for them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, names: Sequence[str] = HOSTS) -> None:
        monkeypatch.setattr(data_spread, "LocalTransport", type("Local", (), {}))
        monkeypatch.setattr(data_spread, "MUCH", 1_000_000)
        quick = joined(*HAND_ON).replace("FRAME_HEARTBEAT_INTERVAL = 1.0", "FRAME_HEARTBEAT_INTERVAL = 0.01")
        self.program = f"{quick}# {folder}\n"
        monkeypatch.setattr(handing_on, "joined", lambda *modules: self.program)
        self.folder, self.told = folder, list[str]()
        self.jobs: dict[str, Any] = {name: self._job(name) for name in names}
        self.data = folder / "images"
        self.data.mkdir()

    def _job(self, name: str) -> Any:
        work, host = self.folder / name / "job", SimpleNamespace(name=name, address="127.0.0.1")
        return SimpleNamespace(host=host, transport=Remote(name), tell=self.told.append, work=work, own=work, job="job")

    def write(self, **files: int) -> None:
        """Write files of so many bytes."""
        for name, size in files.items():
            (self.data / name).write_bytes(os.urandom(size))

    @property
    def sent(self) -> int:
        """How many bytes this machine has sent."""
        return sum(job.transport.sent for job in self.jobs.values())

    def bring(self, made: DataPackage | None = None, hosts: Sequence[str] = HOSTS) -> DataSpread:
        """Let hosts hand data on."""
        spread = DataSpread(made or package(self.data), self.jobs)
        spread.spread(hosts)
        return spread

    def up(self, made: DataPackage | None = None, hosts: Sequence[str] = HOSTS) -> None:
        """Do what `up` does."""
        spread = self.bring(made, hosts)
        for host in hosts:
            if host not in spread.gone:
                spread.send(self.jobs[host])

    def version(self, host: str, made: DataPackage | None = None) -> Path:
        """Return where a version is on a host."""
        version = str((made or package(self.data)).data.version)
        return Path(self.folder / host / ".data" / "images-1" / version)

    def complete(self, made: DataPackage | None = None) -> list[str]:
        """Return the hosts that have all of the data."""
        found = {host: self.version(host, made) for host in self.jobs}
        wanted = contents(self.data)
        return [host for host, path in found.items() if path.is_dir() and contents(path) == wanted]

    def left(self) -> list[str]:
        """Return what transfers have left, and should not have: programs that run, and files."""
        running = [
            path.parent.name
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(self.folder).encode() in _read(path) and path.parent.name != str(os.getpid())
        ]
        found = [str(path) for name in ("incomplete", "arriving", "*.tar") for path in self.folder.rglob(name)]
        return running + found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
