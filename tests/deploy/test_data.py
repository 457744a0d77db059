"""Data on a host: what is sent, what is kept, what is removed. The scripts run here."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import data_source, send_data
from jobctl.jobspec.deploy.host.data_source import FolderOnHost, version_on_host
from jobctl.jobspec.deploy.host.kept_data import kept_data, remove_data
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.host.send_data import DataPackage, pack_data
from jobctl.jobspec.deploy.host.transfer_progress import TransferProgress
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.store.data import version_of
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.inspect.data import DataOnHosts, choose
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


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"a" * 300_000)
    (folder / "deep" / "-b\n\\.bin").write_bytes(b"b" * 10)
    (folder / ".hidden").write_text("kept")
    os.symlink("a.bin", folder / "link")
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Any:
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
    data = Dataset(str(folder), "/data", "images-1", version_on_host(there), host=transport.host)
    (made,) = pack_data((data,), lambda one: there)
    return made


def there(host: Any, made: DataPackage) -> Path:
    return Path(host.work.parent / ".data" / "images-1" / str(made.data.version))


def versions(host: Any) -> list[str]:
    """Return what a host has of the data, as `jobctl data` shows it."""
    return [one.version for one in kept_data(host)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_there_whatever_they_are_called(source: Path, host: Any) -> None:
    made = package(source)
    made.send(host)
    assert contents(there(host, made)) == contents(source)
    assert os.readlink(there(host, made) / "link") == "a.bin"


def test_data_that_a_host_has_is_not_sent(source: Path, host: Any) -> None:
    package(source).send(host)
    before = host.transport.sent
    package(source).send(host)
    assert host.transport.sent == before


def test_of_changed_data_only_the_changed_file_is_sent_and_the_others_take_no_room(source: Path, host: Any) -> None:
    first = package(source)
    first.send(host)
    before = host.transport.sent
    (source / ".hidden").write_text("changed")
    second = package(source)
    second.send(host)
    assert host.transport.sent - before < 20_000
    assert contents(there(host, second)) == contents(source)
    assert (there(host, first) / ".hidden").read_text() == "kept"
    assert (there(host, first) / "a.bin").stat().st_ino == (there(host, second) / "a.bin").stat().st_ino


def test_a_file_that_differs_on_arrival_is_an_error_and_no_version_is_kept(source: Path, host: Any) -> None:
    made = package(source)
    assert made.source.known
    (source / "a.bin").write_bytes(b"c" * 300_000)
    with pytest.raises(HostError, match=r"what has arrived of .*images differs from what was sent: a.bin"):
        made.send(host)
    assert versions(host) == ["incomplete"]
    again = package(source)
    again.send(host)
    assert contents(there(host, again)) == contents(source)


def test_data_that_finds_no_room_is_not_sent(source: Path, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(source)
    run = host.transport.run

    def full(argv: Sequence[str], stdin: Any = b"", **how: Any) -> Result:
        assert not stdin
        done = run(argv, stdin, **how)
        return Result(0, b"100\n\n\n\0", b"") if argv[2] == SCRIPTS.text("list_data") else done

    monkeypatch.setattr(host.transport, "run", full)
    with pytest.raises(HostError, match="there is no room for 0 MB of data") as caught:
        made.send(host)
    assert caught.value.code == "disk-full"


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


def test_a_folder_that_is_not_there_is_told_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"cannot read .*/gone: No such file") as caught:
        pack_data((Dataset(str(tmp_path / "gone"), "/data", "gone-1"),), nobody)
    assert "`data` in the spec" in (caught.value.hint or "")


def test_kept_data_is_listed_with_the_jobs_that_mount_it(source: Path, host: Any) -> None:
    assert kept_data(host) == []
    made = package(source)
    made.send(host)
    path = there(host, made)
    host.mounts = [{"Labels": {"jobctl.job": "bert"}, "Mounts": [{"Source": str(path)}]}]
    (one,) = kept_data(host)
    assert (one.name, one.version, one.jobs) == ("images-1", made.data.version, ("bert",))
    assert 300_000 < one.size < 400_000


def test_removed_data_leaves_nothing(source: Path, host: Any) -> None:
    package(source).send(host)
    (source / ".hidden").write_text("changed")
    package(source).send(host)
    remove_data(host, kept_data(host)[:1])
    (left,) = kept_data(host)
    remove_data(host, [left])
    assert not host.work.parent.exists()


def test_data_of_a_job_is_not_removed(source: Path, host: Any) -> None:
    made = package(source)
    made.send(host)
    host.mounts = [{"Labels": {"jobctl.job": "bert"}, "Mounts": [{"Source": str(there(host, made))}]}]
    found = DataOnHosts({"h1": kept_data(host)}, {})
    assert choose(found, []) == {"h1": []}
    with pytest.raises(Refused, match="job `bert` has data `images-1`"):
        choose(found, ["images-1"])
    with pytest.raises(Refused, match="no data `other` is on these hosts"):
        choose(found, ["other"])


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
    assert version_on_host(gone) is None
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


# How far it is.


def test_a_host_copies_its_own_files_in_parts_and_tells_of_each(
    source: Path, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "b.bin").write_bytes(b"b" * 2_000_000)
    (source / "c.bin").write_bytes(b"c" * 900_000)
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
