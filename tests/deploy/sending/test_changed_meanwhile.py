"""Code and data that change between the look that names their version and the end of sending them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.sending.send_code import pack_code
from jobctl.jobspec.deploy.sending.send_data import pack_data
from jobctl.jobspec.deploy.store.code import _looked_at, code_hash
from jobctl.jobspec.deploy.store.data import version_of
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Code, Dataset
from tests.deploy.sending.sent_data import host_of_data, nobody, package_from, there
from tests.render.plans import plan as made_plan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    return folder


def plan_of(root: Path) -> Any:
    """Return a plan that names the version of what is in the folder now."""
    plan = replace(made_plan(), target="compose", code=Code(str(root), "/workspace", ()))
    assert plan.code is not None
    return replace(plan, code=replace(plan.code, version=code_hash(plan)))


def host(tmp_path: Path) -> Any:
    return SimpleNamespace(work=tmp_path / "host", transport=LocalTransport())


def test_code_that_is_edited_meanwhile_gets_no_old_name(root: Path, tmp_path: Path) -> None:
    plan = plan_of(root)
    (root / "train.py").write_text("print(2)\n")
    package = pack_code(plan)
    assert package is not None
    with pytest.raises(DeployError, match=r"train.py was changed before all of it was sent"):
        package.send(host(tmp_path))
    assert list((tmp_path / "host" / "code").iterdir()) == []
    package = pack_code(plan_of(root))
    assert package is not None
    package.send(host(tmp_path))
    assert (tmp_path / "host" / "code" / str(package.code.version) / "train.py").read_text() == "print(2)\n"


def test_another_version_of_the_code_hides_no_edit(root: Path, tmp_path: Path) -> None:
    """As where a key of `code` has changed: its old value is planned, too."""
    plan = plan_of(root)
    assert code_hash(replace(plan, code=replace(plan.code, exclude=("train.py",)))) != plan.code.version
    (root / "train.py").write_text("print(2)\n")
    package = pack_code(plan)
    assert package is not None
    with pytest.raises(DeployError, match=r"train.py was changed before all of it was sent"):
        package.send(host(tmp_path))


def test_an_edit_is_seen_among_more_files_than_digests_are_kept_of(root: Path, tmp_path: Path) -> None:
    plan = plan_of(root)
    (root / "train.py").write_text("print(2)\n")
    _looked_at.cache_clear()
    package = pack_code(plan)
    assert package is not None
    with pytest.raises(DeployError, match=r"train.py was changed before all of it was sent"):
        package.send(host(tmp_path))


def test_a_log_that_grows_and_a_file_that_comes_keep_no_code_from_hosts(root: Path, tmp_path: Path) -> None:
    """As with `jobctl up > up.log` in the folder of the code."""
    logs = {root / "up.log": "begins\n", root / "large.log": "x" * 2_000_000}
    for path, text in logs.items():
        path.write_text(text)
    plan = plan_of(root)
    for path in logs:
        with path.open("a") as log:
            log.write("goes on\n")
    (root / "new.py").write_text("print(3)\n")
    package = pack_code(plan)
    assert package is not None
    package.send(host(tmp_path))
    sent = tmp_path / "host" / "code" / plan.code.version
    assert {path.name: path.stat().st_size for path in sent.iterdir()} == {
        "large.log": 2_000_000,
        "train.py": 9,
        "up.log": 7,
    }


def test_a_version_of_data_has_the_files_that_named_it(tmp_path: Path) -> None:
    folder, taker = tmp_path / "images", host_of_data(tmp_path)
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"a" * 10)
    data = Dataset(str(folder), "/data", "images-1")
    data = replace(data, version=version_of(data))
    (folder / "b.bin").write_bytes(b"b")
    (package,) = pack_data((data,), nobody)
    package.send(taker)
    assert {path.name: path.stat().st_size for path in there(taker, package).iterdir()} == {"a.bin": 10}


@pytest.mark.parametrize("content", [b"b" * 20, b"a" * 11, b"b" * 10, b"a", None])
def test_data_that_is_rewritten_meanwhile_gets_no_old_name(tmp_path: Path, content: bytes | None) -> None:
    """Also data that only grew: it cannot be told from a rewrite, since nobody has read what it was."""
    folder, taker = tmp_path / "images", host_of_data(tmp_path)
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"a" * 10)
    data = Dataset(str(folder), "/data", "images-1")
    data = replace(data, version=version_of(data))
    if content is None:
        (folder / "a.bin").unlink()
    else:
        (folder / "a.bin").write_bytes(content)
        os.utime(folder / "a.bin", (1, 1))
    (package,) = pack_data((data,), nobody)
    with pytest.raises(DeployError, match=r"a.bin was changed before all of it was sent"):
        package.send(taker)
    assert not there(taker, package).exists()


def test_data_that_is_rewritten_while_it_is_sent_gets_no_old_name(tmp_path: Path) -> None:
    """Even if so many files are looked at that their digests are forgotten."""
    folder, taker = tmp_path / "images", host_of_data(tmp_path)
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"a" * 10)
    data = Dataset(str(folder), "/data", "images-1")
    (package,) = pack_data((replace(data, version=version_of(data)),), nobody)
    assert b"a.bin" in package.known
    (folder / "a.bin").write_bytes(b"b" * 10)
    _looked_at.cache_clear()
    with pytest.raises(DeployError, match=r"a.bin was changed before all of it was sent"):
        package.send(taker)
    assert not there(taker, package).exists()


@pytest.mark.parametrize("content", [b"b" * 10, None])
def test_data_of_a_host_that_is_rewritten_meanwhile_gets_no_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    folder, taker = tmp_path / "images", host_of_data(tmp_path)
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"a" * 10)
    package = package_from(LocalTransport("h2"), folder)
    (folder / "b.bin").write_bytes(b"b")  # a new one is of another version, and left out
    assert b"b.bin" not in package.known
    package = package_from(LocalTransport("h2"), folder)
    if content is None:
        (folder / "a.bin").unlink()
    else:
        (folder / "a.bin").write_bytes(content)
        os.utime(folder / "a.bin", (1, 1))
    with pytest.raises(HostError, match=r"h2: .*/a.bin was changed before all of it was sent"):
        package.send(taker)
    assert not there(taker, package).exists()
    monkeypatch.setattr(package.source, "sums", lambda: pytest.fail("all of it is read once more, for the next host"))
    with pytest.raises(HostError, match=r"h2: .*/a.bin was changed before all of it was sent"):
        package.send(taker)


def test_data_of_a_host_that_did_not_answer_at_first_gets_no_old_name(tmp_path: Path) -> None:
    """The version of the running job counts then, and the host has another one by now."""
    folder, taker = tmp_path / "images", host_of_data(tmp_path)
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"a" * 10)
    package = package_from(LocalTransport("h2"), folder)
    running = replace(package, data=replace(package.data, version="of-before"))
    with pytest.raises(HostError, match=r"h2: .*images has changed since the job was started with it"):
        running.send(taker)
    assert not there(taker, running).exists()
