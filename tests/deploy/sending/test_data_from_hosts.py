"""Data that is on a host: how it gets to another one, and how far it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.host.transfer_progress import TransferProgress
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.sending import data_source, send_data
from jobctl.jobspec.deploy.sending.data_source import FolderOnHost
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from tests.deploy.sending.sent_data import Counting, contents, package, package_from, there

# A folder that is on a host.


def test_data_of_a_host_goes_to_another_one_whatever_its_files_are_called(source: Path, host: Any) -> None:
    made = package_from(LocalTransport("h2"), source)
    made.send(host)
    assert contents(there(host, made)) == contents(source)
    assert os.readlink(there(host, made) / "link") == "a.bin"
    assert host.transport.sent > 300_000


def test_the_host_of_the_folder_keeps_a_copy_that_no_byte_was_sent_for(source: Path, host: Any) -> None:
    (source / "deep").chmod(0o700)
    made = package_from(host.transport, source)
    made.send(host)
    assert contents(there(host, made)) == contents(source)
    assert os.readlink(there(host, made) / "link") == "a.bin"
    assert (there(host, made) / "deep").stat().st_mode & 0o777 == 0o755  # whoever the container runs as
    assert host.transport.sent < 1_000
    (source / "a.bin").write_bytes(b"changed in its place")
    assert (there(host, made) / "a.bin").read_bytes() == b"a" * 300_000


@pytest.mark.parametrize("where", ["here", "h1", "h2"])
def test_files_that_would_run_as_their_owner_do_not_arrive_as_such(source: Path, host: Any, where: str) -> None:
    """A file of somebody becomes one of root where root receives it."""
    (source / "a.bin").chmod(0o6755)
    transport = host.transport if where == "h1" else LocalTransport("h2")
    made = package(source) if where == "here" else package_from(transport, source)
    made.send(host)
    assert (there(host, made) / "a.bin").stat().st_mode & 0o7777 == 0o755


def test_a_folder_has_the_same_version_wherever_it_is(source: Path, host: Any) -> None:
    assert package_from(host.transport, source).data.version == package(source).data.version
    (source / "deep" / "-b\n\\.bin").write_bytes(b"c" * 10)
    os.utime(source / "deep" / "-b\n\\.bin", ns=(1, 1_000_000_007))
    assert package_from(host.transport, source).data.version == package(source).data.version


def test_a_folder_that_changes_while_it_is_read_on_a_host_is_an_error(source: Path, host: Any) -> None:
    made = package_from(LocalTransport("h2"), source)
    assert made.source.known
    (source / "a.bin").write_bytes(b"c" * 300_000)
    with pytest.raises(HostError, match=r"what has arrived of .*images differs from what was sent: a.bin"):
        made.send(host)
    assert not there(host, made).exists()


def test_a_file_that_goes_away_on_its_host_is_told(source: Path, host: Any) -> None:
    made = package_from(LocalTransport("h2"), source)
    assert made.source.known
    (source / "a.bin").unlink()
    with pytest.raises(HostError, match=r"h2: cannot read .*images") as caught:
        made.send(host)
    assert caught.value.code == "data-not-read"
    assert not there(host, made).exists()


def test_a_folder_that_is_not_on_its_host_is_told(tmp_path: Path) -> None:
    gone = FolderOnHost(LocalTransport("h2"), str(tmp_path / "gone"))
    assert gone.version is None
    with pytest.raises(HostError, match=r"h2: there is no directory .*/gone") as caught:
        assert gone.files
    assert caught.value.code == "data-missing"


def test_a_host_that_sends_no_more_is_given_up(
    source: Path, host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_source, "STALL", 0.2)
    made = package_from(LocalTransport("h2"), source)
    assert made.source.known
    (source / "a.bin").unlink()
    os.mkfifo(source / "pipe")  # whoever opens it waits for somebody who writes
    monkeypatch.setattr(SCRIPTS.__class__, "argv", hanging(source / "pipe", SCRIPTS.__class__.argv))
    with pytest.raises(HostError, match=r"h2: no byte of .*images has come for 0.2 s") as caught:
        made.send(host)
    assert caught.value.code == "silent"


def hanging(pipe: Path, argv: Any) -> Any:
    """Return what makes the command that reads files hang."""
    return lambda self, name, *how: ["cat", str(pipe)] if name == "read_files" else argv(self, name, *how)


@pytest.mark.parametrize("shares", [True, False])
def test_a_host_without_room_for_its_own_files_copies_them_where_copies_take_none(
    source: Path, host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    """XFS and Btrfs let files share their blocks; here a `cp` that says so stands for them."""
    (tmp_path / "bin").mkdir()
    cp = tmp_path / "bin" / "cp"
    cp.write_text(
        f'#!/bin/sh\ncase $1 in *=always) shift; {str(shares).lower()} || exit 1 ;; esac; exec /bin/cp "$@"\n'
    )
    cp.chmod(0o755)
    monkeypatch.setenv("PATH", f"{cp.parent}:{os.environ['PATH']}")
    run = host.transport.run

    def full(argv: Sequence[str], stdin: Any = b"", **how: Any) -> Result:
        done: Result = run(argv, stdin, **how)
        listed = argv[2] == SCRIPTS.text("list_data")
        return replace(done, out=b"100\n" + done.out.partition(b"\n")[2]) if listed else done

    monkeypatch.setattr(host.transport, "run", full)
    made = package_from(host.transport, source)
    if shares:
        made.send(host)
        assert contents(there(host, made)) == contents(source)
    else:
        with pytest.raises(HostError, match=r"there is no room for \S+ kB of data"):
            made.send(host)
        assert not host.work.parent.exists()
    assert list(tmp_path.rglob(".copy*")) == []


# How far it is.


def test_a_host_copies_its_own_files_in_parts_and_tells_of_each(
    source: Path, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "b.bin").write_bytes(b"b" * 2_000_000)
    (source / "c.bin").write_bytes(b"c" * 900_000)
    for number in range(9):  # however the host lists them
        (source / f"link-{number}").symlink_to("c.bin")
    monkeypatch.setattr(send_data, "_BATCH", 1_000_000)
    told: list[str] = []
    host.tell = told.append
    commands: list[Any] = []
    host.transport = Listed(commands)
    made = package_from(host.transport, source)
    made.send(host)
    assert contents(there(host, made)) == contents(source)
    assert len([argv for argv in commands if argv[2] == SCRIPTS.text("receive_data")]) == 3
    assert told[0].startswith("h1 gets images-1: 0 of 3 MB")
    assert told[-1] == "h1 compares images-1"


class Listed(Counting):
    """Notes its commands."""

    def __init__(self, commands: list[Any]) -> None:
        super().__init__()
        self.commands = commands

    def run(self, argv: Sequence[str], stdin: Any = b"", **how: Any) -> Result:
        self.commands.append(argv)
        return super().run(argv, stdin, **how)


def test_a_transfer_tells_bytes_rate_and_what_is_left() -> None:
    now, told = [100.0], list[str]()
    progress = TransferProgress(told.append, "h1 gets images", 10_000_000_000, lambda: now[0])

    def pieces() -> Iterator[bytes]:
        for seconds, size in ((0.1, 0), (1.0, 100_000_000), (0.2, 20_000_000), (0.8, 80_000_000), (60.0, 60_000_000)):
            now[0] += seconds
            yield bytes(size)

    assert sum(map(len, progress.watch(pieces()))) == 260_000_000
    assert told == [
        "h1 gets images: 0 of 10000 MB",
        "h1 gets images: 100 of 10000 MB, 91 MB/s, 1 min 49 s left",
        "h1 gets images: 200 of 10000 MB, 95 MB/s, 1 min 43 s left",
        "h1 gets images: 260 of 10000 MB, 1 MB/s, 2 h 42 min left",
    ]


def test_a_transfer_that_needs_more_bytes_than_files_have_ends_at_its_size() -> None:
    now = [100.0]
    progress = TransferProgress(lambda text: None, "", 1_000_000, lambda: now[0])
    now[0] += 2.0
    progress.add(1_010_240)
    assert str(progress) == "1 of 1 MB, 1 MB/s, 0 s left"
