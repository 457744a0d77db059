"""What a job leaves behind on a host arrives whole, or `down` keeps it there. This machine plays the host."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from jobctl.jobspec.deploy.host import collecting
from jobctl.jobspec.deploy.host.collecting import collect
from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO

# A process that root runs reads everything, unless it gives that up.
ORDINARY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"] if os.geteuid() == 0 else []
LOG = "node-0/logs/1/workerlog.0"


class Login(LocalTransport):
    """A login that reads no more than modes allow. What it sends can be changed on its way, by `change`."""

    change: Callable[[bytes, str], bytes] | None = None

    def run(self, argv: Sequence[str], stdin: Any = b"", *, timeout: float = 60.0) -> Result:
        return super().run([*ORDINARY, *argv], stdin, timeout=timeout)

    def dial(self, argv: Sequence[str]) -> Any:
        if self.change is None:
            return super().dial([*ORDINARY, *argv])
        sent = self.change(subprocess.run(argv, stdout=-1, check=True).stdout, argv[-1])
        ours, its = socket.socketpair()

        def send() -> None:
            with its, contextlib.suppress(OSError):  # it is not read to its end
                its.sendall(sent)

        threading.Thread(target=send, daemon=True).start()
        return ours


@pytest.fixture
def host_job(tmp_path: Path) -> HostJob:
    made = HostJob(Host("h1"), Login("h1"), "job", "ssh")
    made.use_directories(str(tmp_path / "work"), str(tmp_path / "work"))
    write(tmp_path / "work", LOG)
    return made


def write(work: Path, *names: str) -> None:
    for name in names:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)


def fetched(into: Path) -> dict[str, str]:
    """Return what each file has, and where each link leads."""
    found = (path for path in sorted(into.rglob("*")) if path.is_symlink() or not path.is_dir())
    return {
        str(path.relative_to(into)): f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text()
        for path in found
    }


def refused(host_job: HostJob, into: Path) -> HostError:
    with pytest.raises(HostError) as caught:
        collect(host_job, into)
    return caught.value


def change(host_job: HostJob, by: Callable[[bytes, str], bytes]) -> None:
    assert isinstance(host_job.transport, Login)
    host_job.transport.change = by


# What the login cannot read.


def test_a_file_that_cannot_be_read_is_named(host_job: HostJob, tmp_path: Path) -> None:
    work = tmp_path / "work"
    write(work, "outputs/runs/model.safetensors", "outputs/runs/other", "outputs/runs/readable")
    for name in ("model.safetensors", "other"):
        (work / "outputs" / "runs" / name).chmod(0)
    error = refused(host_job, tmp_path / "into")
    assert error.code == "not-collected"
    cause = f"h1: cannot read all logs and outputs in {work}: "
    first = "outputs/runs/model.safetensors: Cannot open: Permission denied (and others)"
    other = "outputs/runs/other: Cannot open: Permission denied (and others)"
    assert error.message in (cause + first, cause + other)
    assert error.hint is not None
    assert f"sudo chmod -R a+rX {work}" in error.hint
    assert sorted(fetched(tmp_path / "into")) == [LOG, "outputs/h1/runs/readable"]


@pytest.mark.parametrize("name", ["outputs/runs/model.safetensors", "outputs/runs", "code/v1/result.txt", "code/v1/a"])
def test_a_container_makes_readable_what_only_containers_could_read(
    host_job: HostJob, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, asked = tmp_path / "work", list[str]()

    def as_root(self: Containers, code: str, folders: Sequence[str], image: str, python: str, *args: str) -> bool:
        asked.append(image)
        if image == "no-python":
            return False
        assert (folders, python, args) == ([str(work)], "python3.12", ())
        return subprocess.run([sys.executable, "-c", code.replace("/at/0", str(work))]).returncode == 0

    monkeypatch.setattr(Containers, "as_root", as_root)
    write(work, "outputs/runs/model.safetensors", "code/v1/result.txt", "code/v1/a/b/result.txt")
    (work / ".results").write_bytes(b"./result.txt\0./a/b/result.txt\0")
    ended = [
        SeenContainer(0, "trainer", "c", False, None, None, image, python="python3.12")
        for image in ("no-python", "no-python", "a", "b")
    ]
    assert collect(host_job, tmp_path / "into", ended) == 4
    assert asked == []  # there is nothing that cannot be read
    (work / name).chmod(0)
    assert collect(host_job, tmp_path / "into", ended) == 4
    assert asked == ["no-python", "a"]
    # Where none can do that, nothing is fetched: the next `down` would only do it once more.
    (work / name).chmod(0)
    with pytest.raises(HostError, match=f"{name}.*: Permission denied") as caught:
        collect(host_job, tmp_path / "other", ended[:1])
    assert (caught.value.hint is not None, (tmp_path / "other").exists()) == (True, False)


@pytest.mark.parametrize(("code", "whole"), [(0, True), (1, True), (2, False), (137, False)])
def test_what_changes_while_it_is_read_is_no_failure(
    host_job: HostJob, tmp_path: Path, code: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GNU tar ends with 1 then: a log may grow."""
    tar = tmp_path / "bin" / "tar"
    tar.parent.mkdir()
    tar.write_text(f'#!/bin/sh\n/bin/tar "$@"; exit {code}\n')
    tar.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tar.parent}:{os.environ['PATH']}")
    if whole:
        assert collect(host_job, tmp_path / "into") == 1
    else:
        assert refused(host_job, tmp_path / "into").message.endswith(f": exit {code}")


# What is lost on its way.


BOTH = [LOG, "outputs/h1/runs/a"]


def _header(sent: bytes, mark: bytes) -> int:
    """Return where the second file of an archive begins."""
    return sent.index(b"outputs/runs/a")


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (lambda sent, mark: 0, []),
        (_header, [LOG]),
        (lambda sent, mark: _header(sent, mark) + 100, [LOG]),
        (lambda sent, mark: _header(sent, mark) + 515, [LOG]),
        (bytes.index, BOTH),
        (bytes.rindex, BOTH),
    ],
    ids=["at once", "between files", "in a header", "in a file", "behind the archive", "before the last line"],
)
def test_a_connection_that_is_lost_is_noticed(
    host_job: HostJob, tmp_path: Path, where: Callable[[bytes, bytes], int], left: list[str]
) -> None:
    """Its end looks like that of an archive; no half of a file stays."""
    write(tmp_path / "work", "outputs/runs/a")
    change(host_job, lambda sent, mark: sent[: where(sent, mark.encode())])
    assert refused(host_job, tmp_path / "into").code == "lost"
    assert sorted(fetched(tmp_path / "into")) == left


def test_a_connection_that_breaks_off_is_noticed(
    host_job: HostJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, gone = mock.Mock(), HostError("h1", "lost", "its link is dead")
    broken.recv.side_effect = ConnectionResetError(104, "Connection reset by peer")
    monkeypatch.setattr(host_job.transport, "dial", lambda argv: broken)
    assert "Connection reset by peer" in refused(host_job, tmp_path / "into").message
    broken.recv.side_effect = TimeoutError()  # as Paramiko has it, without words
    monkeypatch.setattr(host_job.transport, "run", mock.Mock(side_effect=gone))
    assert refused(host_job, tmp_path / "into") is gone
    monkeypatch.setattr(collecting, "STARTING", 0.0)
    assert "were read: nothing has come for 0 s" in refused(host_job, tmp_path / "into").message


def test_down_keeps_what_it_could_not_fetch_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tuple(Host(name, dir=str(tmp_path / name)) for name in ("h0", "h1"))
    hosts = Hosts(JobDir(tmp_path / "jobs" / "job"), "ssh", Inventory(known), TWO)
    hosts.job.create()
    monkeypatch.setattr(Hosts, "finish", lambda hosts, grace: None)
    monkeypatch.setattr(Containers, "seen", lambda containers: ())
    for name, host_job in hosts.host_jobs.items():
        host_job.transport = Login(name)
        write(Path(host_job.work), f"node-{name[1]}/logs/1/workerlog.0")
    change(hosts.host_jobs["h1"], lambda sent, mark: sent[:-1])
    logs, failed = hosts.take_down(0.0)
    assert logs is not None
    assert (list(failed), (tmp_path / "h0/h0").exists()) == (["h1"], False)
    hosts.host_jobs["h1"].transport = Login("h1")
    logs, failed = hosts.take_down(0.0)
    assert logs is not None
    assert (list(fetched(logs)), failed, (tmp_path / "h1/h1").exists()) == (["node-1/logs/1/workerlog.0"], {}, False)


def test_down_in_slurm_keeps_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "code" / ".jobctl" / "job"
    write(work, LOG)
    monkeypatch.setattr(SlurmAllocation, "cancel", lambda allocation, grace: None)
    allocation = SlurmAllocation(JobDir(tmp_path / "jobs" / "job"), Inventory((Host("localhost"),)), str(work))
    login = Login("localhost")
    allocation.login.transport = allocation.login.files.transport = login
    login.change = lambda sent, mark: sent[: sent.index(LOG.encode()) + 515]
    logs, failed = allocation.take_down(0.0)
    assert (logs, [str(error) for error in failed.values()], (work / LOG).exists()) == (None, [LOST], True)
    login.change = None
    logs, failed = allocation.take_down(0.0)
    assert logs is not None
    assert (list(fetched(logs)), failed, work.parent.exists()) == ([LOG], {}, False)


LOST = "localhost: the connection was lost while its logs and outputs were read"


# Names and links.


def test_each_name_of_a_file_is_fetched(host_job: HostJob, tmp_path: Path) -> None:
    work, into = tmp_path / "work", tmp_path / "into"
    write(work, "outputs/runs/5.pt")
    (work / "outputs" / "runs" / "best.pt").hardlink_to(work / "outputs" / "runs" / "5.pt")
    (work / "outputs" / "runs" / "latest.pt").symlink_to("./5.pt")
    (work / "outputs" / "latest").symlink_to("runs")
    (work / "node-0" / "logs" / "1" / "all").symlink_to("../1")
    assert collect(host_job, into) == 6
    expected = {
        LOG: LOG,
        "node-0/logs/1/all": "-> ../1",
        "outputs/h1/latest": "-> runs",
        "outputs/h1/runs/5.pt": "outputs/runs/5.pt",
        "outputs/h1/runs/best.pt": "outputs/runs/5.pt",
        "outputs/h1/runs/latest.pt": "-> ./5.pt",
    }
    assert fetched(into) == expected
    # Another `pull` into the same folder: what was a link is a file now, and writes into no other one.
    (work / "outputs" / "runs" / "latest.pt").unlink()
    write(work, "outputs/runs/latest.pt")
    (work / "outputs" / "runs" / "6.pt").symlink_to("5.pt")
    assert collect(host_job, into) == 7
    latest = {"outputs/h1/runs/latest.pt": "outputs/runs/latest.pt", "outputs/h1/runs/6.pt": "-> 5.pt"}
    assert fetched(into) == expected | latest


def test_the_newest_of_an_output_file_is_fetched(host_job: HostJob, tmp_path: Path) -> None:
    """A version of the code that was sent ahead has a copy; what runs goes on in the older one."""
    work = tmp_path / "work"
    for moment, name in enumerate(
        ["code/v3/deep/result 1.txt", "code/v1/deep/result 1.txt", "code/v2/deep/result 1.txt"]
    ):
        write(work, name)
        os.utime(work / name, (moment, moment))
    write(work, "code/v1/train.py", "code/v3/new.txt")
    (work / ".results").write_bytes(b"./deep/result 1.txt\0./none.txt\0./new.txt\0")
    assert collect(host_job, tmp_path / "into") == 3
    assert fetched(tmp_path / "into") == {
        LOG: LOG,
        "outputs/h1/deep/result 1.txt": "code/v2/deep/result 1.txt",
        "outputs/h1/new.txt": "code/v3/new.txt",
    }


# What hosts send that are not to be trusted.


def archive(*members: tuple[str, str | None]) -> Callable[[bytes, str], bytes]:
    """Return what sends files, and links where there is a target."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, target in members:
            member = tarfile.TarInfo(name)
            if target is None:
                member.size = 1
                made.addfile(member, io.BytesIO(b"x"))
            else:
                member.type, member.linkname = tarfile.SYMTYPE, target
                made.addfile(member)
    return lambda sent, mark: buffer.getvalue() + f"{mark}\nexit 0\n{mark}\n".encode()


@pytest.mark.parametrize(
    "links",
    [
        [(".", "/etc")],
        [("outputs/x", "/etc")],
        [("outputs/x", "..")],
        [("outputs/x", "../h2")],
        [("node-0/x", "../node-1")],
        [("outputs/a/x", "../../..")],
        [("outputs/x", "a/../../..")],
        [("outputs/d/e/l/x", "../../../..")],
    ],
    ids=lambda links: " ".join(target for _, target in links),
)
def test_links_that_lead_out_are_left_out(host_job: HostJob, tmp_path: Path, links: list[tuple[str, str]]) -> None:
    into = tmp_path / "into"
    made = {"outputs/h1/d/e/l": "-> ../..", "outputs/h1/d/q": "-> ."}
    change(host_job, archive(("outputs/d/e/l", "../.."), ("outputs/d/q", "."), *links))
    assert collect(host_job, into) == 2
    assert fetched(into) == made
    assert not (tmp_path / "x").exists()


def test_nothing_is_written_through_a_link(host_job: HostJob, tmp_path: Path) -> None:
    change(host_job, archive(("outputs/l", "m"), ("outputs/l", None), ("outputs/l", "n")))
    assert collect(host_job, tmp_path / "into") == 3
    assert fetched(tmp_path / "into") == {"outputs/h1/l": "-> n"}


def test_a_folder_that_was_a_link_when_it_was_fetched_before(host_job: HostJob, tmp_path: Path) -> None:
    into, there = tmp_path / "into", tmp_path / "work" / "outputs"
    write(there, "5/a")
    (there / "latest").symlink_to("5")
    collect(host_job, into)
    (there / "latest").unlink()
    write(there, "latest/a")
    collect(host_job, into)
    assert fetched(into / "outputs") == {"h1/5/a": "5/a", "h1/latest/a": "latest/a"}
    (there / "latest").rename(there / "old")
    write(there, "latest")
    assert refused(host_job, into).hint == "remove it, or fetch into another folder"  # which is a file now


@pytest.mark.parametrize(
    "members",
    [
        [("../x", None)],
        [("outputs/../../../x", None)],
        [("outputs/a", None), ("outputs/a/b", None)],
        [("outputs/a/b", None), ("outputs/a", None)],
        [("outputs/a/b", None), ("outputs/a", "c")],
        [("outputs/" + "a" * 300, None)],
        [("../x", "y")],
        [(".", None)],
    ],
    ids=lambda members: members[-1][0][:20],
)
def test_what_cannot_be_written_here_fails_that_host_alone(
    host_job: HostJob, tmp_path: Path, members: list[tuple[str, str | None]]
) -> None:
    (tmp_path / "into").mkdir()
    change(host_job, archive(*members))
    assert refused(host_job, tmp_path / "into").code == "not-collected"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["into", "work"]


def test_what_is_no_archive_is_refused(host_job: HostJob, tmp_path: Path) -> None:
    change(host_job, lambda sent, mark: b"Welcome!\n" * 99_999)
    error = refused(host_job, tmp_path / "into")
    assert error.code == "not-collected"
    assert error.message.startswith("h1: what it sent as logs and outputs cannot be unpacked: ")


def test_a_full_disk_of_this_machine_is_named(
    host_job: HostJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractfile", full)
    error = refused(host_job, tmp_path / "into")
    place = tmp_path / "into" / LOG
    message = f"h1: its logs and outputs cannot be written here: {place}: No space left on device"
    assert (error.message, error.hint) == (message, "make room on this machine")
