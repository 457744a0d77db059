"""Data on a host, when a transfer is cut off, or another command sends the same."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.sending.data_folder import DataFileThere, DataFolder, DataThere
from jobctl.jobspec.deploy.sending.kept_data import kept_data, remove_data
from jobctl.jobspec.deploy.sending.send_data import DataPackage
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from tests.deploy.sending.sent_data import (
    Counting,
    contents,
    package,
    package_from,
    there,
    versions,
)


class Cut(Counting):
    """Loses the connection after so many bytes of each input."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def run(self, argv: Sequence[str], stdin: Any = b"", **how: Any) -> Result:
        data = b"".join([stdin] if isinstance(stdin, bytes) else stdin)
        return super().run(argv, data[: self.after], **how)


def interrupted(made: DataPackage, host: Any, after: int) -> None:
    """Send data over a connection that is lost after so many bytes."""
    good, host.transport = host.transport, Cut(after)
    with pytest.raises(HostError, match="cannot write data into"):
        made.send(host)
    host.transport = good
    assert versions(host) == ["incomplete"]


@pytest.mark.parametrize("where", ["here", "on a host"])
def test_what_an_interrupted_transfer_has_brought_is_not_sent_again(source: Path, host: Any, where: str) -> None:
    """Not the files that are whole, nor the beginning of the one that is not."""
    (source / "b.bin").write_bytes(bytes(range(256)) * 8_000)
    made = package(source) if where == "here" else package_from(LocalTransport("h2"), source)
    interrupted(made, host, 1_000_000)
    begun = there(host, made).parent / "incomplete" / "b.bin"
    size = begun.stat().st_size
    assert 500_000 < size < 1_000_000
    made.send(host)
    assert host.transport.sent < 2_048_000 - size + 30_000
    assert contents(there(host, made)) == contents(source)
    (arrived, sent) = ((folder / "b.bin").stat() for folder in (there(host, made), source))
    assert (arrived.st_mode, int(arrived.st_mtime)) == (sent.st_mode, int(sent.st_mtime))
    assert versions(host) == [made.data.version]


def test_what_an_interrupted_transfer_has_left_makes_room_as_it_goes(source: Path, host: Any) -> None:
    """But not the second names of files that are kept."""
    made, folder = package(source), DataFolder(host, "images-1")
    left = {b"a.bin": DataFileThere(0o644, "of another content", 200_000), b"goes": DataFileThere(0o644, "x", 100_000)}
    (shipment,) = made._shipments(host, folder, DataThere(5_000, "", "", {}, left))
    assert sorted(shipment.stale) == [b"a.bin", b"goes"]
    left[b"goes"] = DataFileThere(0o644, None, 100_000)
    with pytest.raises(HostError, match="there is no room"):
        made._shipments(host, folder, DataThere(5_000, "", "", {}, left))


def test_of_an_interrupted_transfer_only_what_belongs_to_the_new_version_is_used(source: Path, host: Any) -> None:
    (source / "b.bin").write_bytes(bytes(range(256)) * 8_000)
    os.symlink("b.bin", source / "a.link")
    (source / "aa").mkdir()
    (source / "aa" / "a\nb").write_text("goes away")
    interrupted(package(source), host, 1_000_000)
    shutil.rmtree(source / "aa")
    (source / "aa").write_text("a file in the place of a folder")
    (source / "a.link").unlink()
    (source / "b.bin").write_bytes(b"another beginning" * 100_000)
    made = package(source)
    made.send(host)
    assert contents(there(host, made)) == contents(source)
    assert not os.path.lexists(there(host, made) / "a.link")
    assert 1_700_000 < host.transport.sent < 1_800_000  # all of b.bin, and nothing of a.bin


def test_an_interrupted_transfer_changes_no_version(source: Path, host: Any) -> None:
    first = package(source)
    first.send(host)
    (source / "a.bin").write_bytes(b"A" * 300_000)
    (source / "b.bin").write_bytes(b"b" * 2_000_000)
    good, host.transport = host.transport, Cut(500_000)
    with pytest.raises(HostError):
        package(source).send(host)
    host.transport = good
    assert (there(host, first) / "a.bin").read_bytes() == b"a" * 300_000
    second = package(source)
    second.send(host)
    assert (there(host, first) / "a.bin").read_bytes() == b"a" * 300_000
    assert contents(there(host, second)) == contents(source)


def test_what_an_interrupted_transfer_has_left_is_listed_and_removed(source: Path, host: Any) -> None:
    (source / "b.bin").write_bytes(b"b" * 2_000_000)
    interrupted(package(source), host, 1_000_000)
    remove_data(host, kept_data(host))
    assert not host.work.parent.exists()


class Crowded(Counting):
    """Lets another command do something before files are sent, and before they get their name."""

    def __init__(self, **before: Any) -> None:
        super().__init__()
        self.before = before

    def run(self, argv: Sequence[str], stdin: Any = b"", **how: Any) -> Result:
        for script, task in list(self.before.items()):
            if argv[2] == SCRIPTS.text(script):
                del self.before[script]
                task()
        return super().run(argv, stdin, **how)


def test_two_commands_that_send_the_same_data_do_not_disturb_each_other(source: Path, host: Any) -> None:
    made = package(source)
    alone, both = host.transport, SimpleNamespace(**vars(host))
    both.transport = Crowded(receive_data=lambda: made.send(host))
    made.send(both)
    assert versions(host) == [made.data.version]
    (source / ".hidden").write_text("changed")
    again = package(source)
    half = SimpleNamespace(**vars(host))
    half.transport = Crowded(keep_data=lambda: pytest.fail("it is not whole"))

    def send_half() -> None:
        with pytest.raises(pytest.fail.Exception):
            again.send(half)

    both.transport = Crowded(receive_data=send_half)
    again.send(both)
    assert both.transport.sent < 10_000  # the other one had sent it
    assert contents(there(host, again)) == contents(source)
    assert alone is host.transport


def test_what_another_command_changes_does_not_become_a_version(source: Path, host: Any) -> None:
    made = package(source)
    other = package(source)
    cut = SimpleNamespace(**vars(host))
    cut.transport = Cut(200_000)

    def send_part() -> None:
        left = there(host, made).parent / "incomplete" / "a.bin"
        left.write_bytes(b"short")
        with pytest.raises(HostError):
            other.send(cut)

    host.transport = Crowded(keep_data=send_part)
    made.send(host)
    assert contents(there(host, made)) == contents(source)


def test_a_command_waits_for_another_one_that_sends_the_same_data(source: Path, host: Any) -> None:
    made = package(source)
    top = there(host, made).parent
    top.mkdir(parents=True)
    with (top / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(SCRIPTS.argv("list_data", str(top), ""), stdout=-1, stderr=-1)
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == b"waiting for another command, which sends the same data\n"
    assert waiting.wait() == 0
    waiting.communicate()
