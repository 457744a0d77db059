"""Data on a host: what is sent, what is kept, what is removed. The scripts run here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.sending.data_folder import DataFolder
from jobctl.jobspec.deploy.sending.kept_data import kept_data, remove_data
from jobctl.jobspec.deploy.sending.send_data import pack_data
from jobctl.jobspec.deploy.transport.base import TIMEOUT, Result
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.inspect.data import DataOnHosts, choose
from jobctl.jobspec.plan.sent import Dataset
from tests.deploy.sending.sent_data import contents, nobody, package, there, versions


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


def test_of_many_files_only_the_names_of_those_that_change_travel(source: Path, host: Any) -> None:
    for number in range(200):
        (source / "deep" / f"one of many files {number}").write_text(str(number))
    (source / "old").mkdir()
    (source / "old" / "goes").write_text("away")
    os.symlink("goes", source / "old" / "link")
    package(source).send(host)
    before = host.transport.sent
    shutil.rmtree(source / "old")
    (source / "deep" / "one of many files 7").write_text("changed")
    made = package(source)
    made.send(host)
    assert contents(there(host, made)) == contents(source)
    assert not (there(host, made) / "old").exists()
    assert host.transport.sent - before < 5_000


def test_a_file_that_got_no_second_name_is_an_error(source: Path, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package(source).send(host)
    (source / ".hidden").write_text("changed")
    made, look = package(source), DataFolder.look

    def without(folder: DataFolder, timeout: float, *, again: bool = False) -> Any:
        if again:
            (there(host, made).parent / "incomplete" / "a.bin").unlink()
        return look(folder, timeout, again=again)

    monkeypatch.setattr(DataFolder, "look", without)
    with pytest.raises(HostError, match=r"differs from what was sent: a\.bin"):
        made.send(host)


def test_a_file_that_differs_on_arrival_is_an_error_and_no_version_is_kept(
    source: Path, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, run = package(source), host.transport.run

    def spoil(argv: Sequence[str], stdin: Any = b"", **how: Any) -> Result:
        data = b"".join([stdin] if isinstance(stdin, bytes) else stdin)
        return run(argv, data.replace(b"a" * 300_000, b"c" * 300_000), **how)  # type: ignore[no-any-return]

    with monkeypatch.context() as on_the_way:
        on_the_way.setattr(host.transport, "run", spoil)
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
    with pytest.raises(HostError, match=r"there is no room for \S+ kB of data") as caught:
        made.send(host)
    assert caught.value.code == "disk-full"


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


def test_a_host_may_take_its_time_to_count_and_remove_millions_of_files(source: Path, host: Any) -> None:
    package(source).send(host)
    patience, run = list[float](), host.transport.run

    def slow(argv: list[str], stdin: Any = b"", *, timeout: float = TIMEOUT) -> Result:
        patience.append(timeout)
        return run(argv, stdin, timeout=timeout)  # type: ignore[no-any-return]

    host.transport.run = slow
    remove_data(host, kept_data(host))
    assert patience == [600.0, 600.0]


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
    silent = {"h2": HostError("h2", "no-route", "no route to its address")}
    with pytest.raises(Refused, match="no data `other` is on the hosts that answer") as refused:
        choose(DataOnHosts(found.hosts, silent), ["other"])
    assert refused.value.failures == silent
