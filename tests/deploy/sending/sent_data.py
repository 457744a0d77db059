"""A folder of data, and a host that it is sent to: the scripts run on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobctl.jobspec.deploy.sending.data_source import FolderOnHost
from jobctl.jobspec.deploy.sending.kept_data import kept_data
from jobctl.jobspec.deploy.sending.send_data import DataPackage, pack_data
from jobctl.jobspec.deploy.store.data import version_of
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Dataset


class Counting(LocalTransport):
    """Counts the bytes that are sent."""

    def __init__(self) -> None:
        super().__init__("h1")
        self.sent = 0

    def run(self, argv: Sequence[str], stdin: Any = b"", **how: Any) -> Result:
        data = b"".join([stdin] if isinstance(stdin, bytes) else stdin)
        self.sent += len(data)
        return super().run(argv, data, **how)


def data_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"a" * 300_000)
    (folder / "deep" / "-b\n\\.bin").write_bytes(b"b" * 10)
    (folder / ".hidden").write_text("kept")
    os.symlink("a.bin", folder / "link")
    return folder


def host_of_data(tmp_path: Path) -> Any:
    """A host whose containers mount what `mounts` says."""
    made = SimpleNamespace(work=tmp_path / "host" / "job", transport=Counting(), host=SimpleNamespace(name="h1"))
    made.mounts = []
    made.tell = lambda text: None
    client = SimpleNamespace(containers=lambda **how: made.mounts)
    made.engine = SimpleNamespace(asked=lambda: Opened(client), answer=lambda value, kind: value)
    return made


class Opened(SimpleNamespace):
    def __init__(self, client: Any) -> None:
        super().__init__(client=client)

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *error: object) -> None:
        return None


def package(source: Path) -> DataPackage:
    data = Dataset(str(source), "/data", "images-1")
    (made,) = pack_data((Dataset(data.source, data.target, data.name, version_of(data)),), nobody)
    return made


def nobody(data: Dataset) -> FolderOnHost:
    raise AssertionError("all data is here")


def package_from(transport: LocalTransport, folder: Path) -> DataPackage:
    """Return data that is on a host."""
    there = FolderOnHost(transport, str(folder))
    data = Dataset(str(folder), "/data", "images-1", there.version, host=transport.host)
    (made,) = pack_data((data,), lambda one: there)
    return made


def there(host: Any, made: DataPackage) -> Path:
    return Path(host.work.parent / ".data" / "images-1" / str(made.data.version))


def versions(host: Any) -> list[str]:
    """Return what a host has of the data, as `jobctl data` shows it."""
    return [one.version for one in kept_data(host)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
