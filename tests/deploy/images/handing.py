"""Hosts that hand an image on, which this machine plays: their engines are files."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import handing_on
from jobctl.jobspec.deploy.host.handing_on import ArchiveSource
from jobctl.jobspec.deploy.host.scripts import HAND_ON, joined
from jobctl.jobspec.deploy.transport.local import LocalTransport


class Played:
    """Hosts that are folders of this machine. Their engine is a file: it is loaded by writing it."""

    def __init__(self, folder: Path, names: list[str], size: int = 5_000_000) -> None:
        self.folder, self.keep = folder, ""
        self.image = image(size)
        self.told: list[str] = []
        self.jobs: dict[str, Any] = {name: self._job(name) for name in names}

    def _job(self, name: str) -> Any:
        load = ("sh", "-c", 'cat > "$0"', str(self.folder / name))
        host = SimpleNamespace(name=name, address="127.0.0.1")
        own = self.folder / "own" / name
        return SimpleNamespace(host=host, transport=LocalTransport(name), tell=self.told.append, docker=load, own=own)

    def source(self, name: str = "h1", save: list[str] | None = None) -> ArchiveSource:
        (self.folder / "saved").write_bytes(self.image)
        save = save or ["cat", str(self.folder / "saved")]
        return ArchiveSource(name, self._job(name), save, frozenset(), lambda: iter([]), keep=self.keep)

    def here(self) -> ArchiveSource:
        pieces = [self.image[at : at + 300_000] for at in range(0, len(self.image), 300_000)]
        return ArchiveSource("this machine", None, [], frozenset(), lambda: iter(pieces), keep=self.keep)

    def kept(self) -> dict[str, Path]:
        """Return the files of what hosts have got."""
        return {path.parts[-3]: path for path in self.folder.glob("own/*/arriving/*")}

    def loaded(self) -> dict[str, bool]:
        wanted = hashlib.sha256(self.image).digest()
        found = {name: self.folder / name for name in self.jobs if (self.folder / name).exists()}
        return {name: hashlib.sha256(path.read_bytes()).digest() == wanted for name, path in found.items()}


def image(size: int) -> bytes:
    """Return a tar as `without_layers` leaves it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("layer.tar")
        member.size = size
        archive.addfile(member, io.BytesIO(os.urandom(size)))
    with tarfile.open(fileobj=io.BytesIO(made.getvalue())) as archive:
        end = archive.getmembers()[-1].offset_data + size + -size % 512
    return made.getvalue()[:end] + bytes(1024)


class Gated:
    """A source that stops in the middle until it is let go on, and the programs that were started."""

    def __init__(self, played: Played, monkeypatch: pytest.MonkeyPatch, at: int = 3_000_000) -> None:
        self.go, self.programs = played.folder / "go", dict[str, Any]()
        begin = f"head -c {at} $0; while [ ! -e $1 ] && kill -0 $PPID; do sleep 0.02; done; tail -c +{at + 1} $0"
        self.source = played.source(save=["sh", "-c", begin, str(played.folder / "saved"), str(self.go)])
        start = LocalTransport.start

        def kept(transport: LocalTransport, argv: list[str], terminal: Any = None) -> Any:
            self.programs[transport.host] = made = start(transport, argv, terminal)
            return made

        monkeypatch.setattr(LocalTransport, "start", kept)
        quicker = joined(*HAND_ON).replace("FRAME_HEARTBEAT_INTERVAL = 1.0", "FRAME_HEARTBEAT_INTERVAL = 0.2")
        quicker = quicker.replace("MAX_WAITING_BYTES = 16 <<", "MAX_WAITING_BYTES = 2 <<")
        monkeypatch.setattr(handing_on, "joined", lambda *names: quicker)

    def signal(self, played: Played, name: str, number: int) -> None:
        """Send a signal to the program of a host as soon as a part of the image is there, and let the source go on."""
        host = played.jobs[name]

        def tell(text: str) -> None:
            if f"{name} gets" in text and not self.go.exists():
                os.killpg(self.programs[name]._process.pid, number)
                self.go.touch()

        host.tell = tell
