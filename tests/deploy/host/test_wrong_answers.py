"""A host that answers something else than what its scripts print is told by name, and ends nothing else."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.host import collecting
from jobctl.jobspec.deploy.host.collecting import collect
from jobctl.jobspec.deploy.host.host_job import HostJob, is_full
from jobctl.jobspec.deploy.host.work_reader import files_in
from jobctl.jobspec.deploy.images import room
from jobctl.jobspec.deploy.model.engine_kind import EngineKind
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.sending.data_folder import DataFolder
from jobctl.jobspec.deploy.sending.data_source import FolderOnHost
from jobctl.jobspec.deploy.sending.kept_data import kept_data
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.host.test_collecting import change, host_job, refused

__all__ = ["host_job"]


def header(name: str, size: bytes = b"00000000000", kind: bytes = b"0") -> bytes:
    """Return what stands before a file in an archive, with a size that nobody has."""
    data = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    data[124 : 124 + len(size)], data[156:157] = size, kind
    data[148:156] = b"%06o\0 " % (256 + sum(data[:148]) + sum(data[156:512]))
    return bytes(data)


FINE = header("node-0/report.json", b"00000000010") + b'{"a": 1}'.ljust(512, b"\0")
LONG = header("long", b"00000000002", b"L") + b"a".ljust(512, b"\0")  # gives what follows a longer name


@pytest.mark.parametrize(
    "odd",
    [
        header("node-1/report.json", b"-0000004000") + b'{"b": 1}'.ljust(512) + bytes(512),
        header("node-1/report.json", b"\x80" + b"\xff" * 11),
        header("x", b"\x80" + b"\xff" * 11, b"x"),
        header("node-1/report.json", b"\xff" * 12, b"S") + bytes(1024),
        LONG * 3000,
    ],
    ids=["below-zero", "too-large", "too-large-header", "far-below-zero", "headers-of-headers"],
)
def test_files_are_read_up_to_what_is_no_archive(odd: bytes) -> None:
    assert {str(path): data for path, data in files_in(FINE + odd).items()} == {"node-0/report.json": {"a": 1}}


@pytest.mark.parametrize(
    "words", ["room 1 2 3 4", "room 1 0 0 x 4", "room \u00b2 0 0 0 0", "room 1 0 0 0 " + "9" * 5000]
)
def test_a_host_that_does_not_tell_its_room_is_not_full(words: str) -> None:
    assert not is_full(words)


class Says:
    """A host whose commands print this."""

    host = "h1"

    def __init__(self, out: bytes) -> None:
        self.out = out

    def run(self, argv: Sequence[str], stdin: Any = b"", *, timeout: float = 0.0) -> Result:
        return Result(0, self.out, b"")


def job(out: bytes) -> HostJob:
    made = HostJob(Host("h1"), cast("Any", Says(out)), "job", "ssh")
    made.use_directories("/w/h1/job", "/w/h1/job")
    return made


@pytest.mark.parametrize("out", [b"5", b"[1, 2]", b"[" * 99_999, b'"text"', b"{"])
def test_secrets_that_nobody_has_written_are_not_known(out: bytes) -> None:
    assert job(out).secrets() is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda: DataFolder(job(b"1\n\n\nsum\n\0x y z w\0"), "data").look(1.0),
        lambda: DataFolder(job(b"Welcome!\n\n\n\0to the cluster\0"), "data").look(1.0),
        lambda: FolderOnHost(cast("Any", Says(b"Welcome!")), "/data").files,
        lambda: FolderOnHost(cast("Any", Says(b"f 999 1 1.0 name")), "/data").files,
    ],
)
def test_a_list_of_data_that_is_none_is_told(ask: Callable[[], object]) -> None:
    with pytest.raises(HostError, match="it answers something else") as caught:
        ask()
    assert (caught.value.host, caught.value.code) == ("h1", "command-failed")


def test_numbers_of_other_scripts_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes them for digits, and for no number."""
    assert kept_data(job("a b \u00b2 \u00b2".encode())) == []
    made = job("\u00b2 /var/lib".encode())
    kind = EngineKind("docker", "26.1.5", "layers")
    monkeypatch.setattr(type(made.engine), "kind", lambda engine: kind)
    room.check_room(made, "image", 5)
    assert DataFolder(job("\u00b2\n\n\n\0".encode()), "data").look(1.0).free is None


def test_an_odd_archive_fails_its_host_alone(host_job: HostJob, tmp_path: Path) -> None:
    change(host_job, lambda _, mark: LONG * 3000 + bytes(20_000))
    assert refused(host_job, tmp_path / "into").code == "not-collected"


def test_what_comes_before_a_file_has_an_end(
    host_job: HostJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it would be in this machine's memory."""
    monkeypatch.setattr(collecting, "MAX_LINE_BYTES", 1 << 20)
    change(host_job, lambda _, mark: header("x", b"77777777777", b"x") + bytes(3 << 20))
    assert refused(host_job, tmp_path / "into").message.endswith("what it says of one file has no end")


def test_links_have_an_end(host_job: HostJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "LINKS", 2)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number in range(3):
            link = tarfile.TarInfo(f"outputs/{number}")
            link.type, link.linkname = tarfile.SYMTYPE, "x"
            archive.addfile(link)
    change(host_job, lambda _, mark: buffer.getvalue())
    assert refused(host_job, tmp_path / "into").message.endswith("there are more than 2 links")


def test_an_archive_of_many_files_is_not_kept(host_job: HostJob, tmp_path: Path) -> None:
    kept: list[int] = []
    members = collecting._members

    def counted(archive: tarfile.TarFile, reader: Any) -> Any:
        for member in members(archive, reader):
            kept.append(len(archive.members))
            yield member

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(collecting, "_members", counted)
        for name in "abc":
            (tmp_path / "work" / "node-0" / "logs" / "1" / f"workerlog.{name}").write_text(name)
        collect(host_job, tmp_path / "into")
    assert set(kept) == {0}
