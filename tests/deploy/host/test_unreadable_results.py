"""Output files that containers have written for themselves alone, when another version of the code is sent."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS, python, readable
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.images.copy import ImageSources
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.sending.send_code import pack_code
from jobctl.jobspec.deploy.targets.provision import Transfer
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO
from tests.deploy.host.test_collecting import Login

# Root may read everything, but for a process without these rights.
_POWERLESS = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def send(top: Path, version: str, base: str) -> Result:
    """Make a version of the code without files, from version `base` that may have written `model.pt`."""
    argv = SCRIPTS.argv("send_code", str(top), version, base, "0", "10240", "0", "0", "./model.pt")
    return LocalTransport().run([*_POWERLESS, *argv], bytes(10240))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Versions v1 and v2, of which v1 has a file that cannot be read."""
    folder = tmp_path / "code"
    for version in ("v1", "v2"):
        (folder / version).mkdir(parents=True)
    (folder / "v1" / "model.pt").write_text("weights")
    (folder / "v1" / "model.pt").chmod(0)
    return folder


def test_code_is_not_sent_without_an_output_file_that_cannot_be_read(top: Path) -> None:
    result = send(top, "v3", "v1")
    assert result.code == os.EX_NOPERM
    assert f"chmod a+r '{top}/v1/./model.pt'" in result.words
    assert sorted(os.listdir(top)) == ["v1", "v2"]


@pytest.mark.parametrize("able", [True, False])
def test_a_container_makes_readable_what_the_next_version_keeps(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    """One of the images that the host has surely; otherwise that of the plan."""
    asked = list[tuple[str, str]]()

    def as_root(self: Containers, code: str, folders: Sequence[str], image: str, python: str) -> bool:
        asked.append((image, python))
        assert folders == [str(tmp_path)]
        argv = [sys.executable, "-c", code.replace("/at/0", str(tmp_path))]
        return able and image == "team/train:1" and subprocess.run(argv).returncode == 0

    monkeypatch.setattr(Containers, "as_root", as_root)
    seen = (SeenContainer(0, "trainer", "c", True, None, None, "sha256:1", python="python3.12"),)
    monkeypatch.setattr(Containers, "seen", lambda self: seen)
    monkeypatch.setattr(images, "ensure", lambda *given: None)
    (tmp_path / "src").mkdir()
    code = Code(str(tmp_path / "src"), "/workspace", (), version="v3", results=("model.pt",))
    plan = replace(TWO, code=code)
    container = replace(plan.nodes[0].container, image="team/train:1")
    plan = replace(plan, nodes=(replace(plan.nodes[0], container=container), *plan.nodes[1:]))
    host_job = HostJob(Host("h1"), Login("h1"), "job", "ssh")
    host_job.use_directories(str(tmp_path), str(tmp_path))
    shutil.rmtree(top / "v2")
    transfer = Transfer(plan, pack_code(plan), (), ImageSources([host_job]))
    if able:
        transfer.to_node(host_job)
        assert (top / "v3" / "model.pt").read_text() == "weights"
    else:
        with pytest.raises(HostError, match="an output file that you cannot read") as caught:
            transfer.to_node(host_job)
        assert f"sudo chmod a+r '{top}/v1/./model.pt'" in str(caught.value.hint)
    assert asked == [("sha256:1", "python3.12"), ("team/train:1", "python3")]


def test_what_the_user_can_read_stays_as_it_is(top: Path) -> None:
    """Its group may be that of the container's user, who writes there."""
    (top / "v1").chmod(0o700)
    (top / "v1" / "train.py").write_text("")
    (top / "v1" / "train.py").chmod(0o600)
    code = python("readable").replace("/at/0", str(top.parent))
    subprocess.run([sys.executable, "-c", code], check=True)
    modes = [stat.S_IMODE((top / "v1" / name).stat().st_mode) for name in ("", "train.py", "model.pt")]
    assert modes == [0o700, 0o600, 0o440]


def test_what_everybody_can_read_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[tuple[str, int, int]]()
    monkeypatch.setattr(os, "chown", lambda *how: given.append(how))
    user: Any = SimpleNamespace(st_uid=os.geteuid() + 1, st_gid=7)
    for name, mode in (("public", 0o604), ("private", 0o600)):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
        readable.share(str(tmp_path / name), user)
    assert given == [(str(tmp_path / "private"), -1, 7)]
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("public", "private")] == [0o604, 0o640]


def test_a_version_with_an_output_file_that_cannot_be_read_is_not_removed(top: Path) -> None:
    assert send(top, "v3", "v2").code == 0
    assert sorted(os.listdir(top)) == ["v1", "v2", "v3"]
    (top / "v1" / "model.pt").chmod(0o600)
    assert send(top, "v4", "v2").code == 0
    assert sorted(os.listdir(top)) == ["v2", "v4"]


@pytest.mark.parametrize("name", ["a", "a/model.pt"])
@pytest.mark.parametrize("able", [True, False])
def test_a_container_makes_readable_what_the_version_that_begins_goes_on_with(
    top: Path, monkeypatch: pytest.MonkeyPatch, name: str, able: bool
) -> None:
    """Also what is in a folder that only root may enter. Otherwise that is told."""
    asked, told = list[tuple[str, str]](), list[str]()

    def as_root(self: Containers, code: str, folders: Sequence[str], image: str, python: str) -> bool:
        asked.append((image, python))
        argv = [sys.executable, "-c", code.replace("/at/0", str(top.parent))]
        return able and image != "sha256:1" and subprocess.run(argv).returncode == 0

    monkeypatch.setattr(Containers, "as_root", as_root)
    seen = (SeenContainer(0, "trainer", "c", True, None, None, "sha256:1", python="python3.12"),)
    monkeypatch.setattr(Containers, "seen", lambda self: seen)
    for moment, version in enumerate(("v2", "v1")):
        (top / version / "a").mkdir()
        (top / version / "a" / "model.pt").write_text(version)
        os.utime(top / version / "a" / "model.pt", (moment, moment))
    (top.parent / ".results").write_bytes(b"./a/model.pt\0")
    (top / "v1" / name).chmod(0)
    host_job = HostJob(Host("h1"), Login("h1"), "job", "ssh", tell=told.append)
    host_job.use_directories(str(top.parent), str(top.parent))
    container = TWO.nodes[0].container
    host_job.renew_results("v2", container)
    assert (top / "v2" / "a" / "model.pt").read_text() == ("v1" if able else "v2")
    assert asked == [("sha256:1", "python3.12"), (container.image, container.python)]
    assert [("h1 goes on with older" in line, "Permission denied" in line) for line in told] == [(True, True)] * (
        not able
    )
    # What is in the version that begins stays where it is.
    (top / "v2" / "a").chmod(0)
    (top / "v1" / "a").chmod(0o700)
    shutil.rmtree(top / "v1")
    told.clear()
    host_job.renew_results("v2", container)
    assert told == []


def test_an_output_file_in_a_folder_that_cannot_be_entered_is_not_taken_for_gone(top: Path) -> None:
    (top / "v1").chmod(0)
    result = send(top, "v3", "v1")
    assert result.code == os.EX_NOPERM
    assert f"chmod -R a+rX '{top}/v1'" in result.words
    assert sorted(os.listdir(top)) == ["v1", "v2"]


def test_a_node_that_goes_on_with_an_older_output_file_tells_so(tmp_path: Path) -> None:
    told: list[str] = []
    answers = [
        Result(123, b"", b"cp: cannot open 'code/v1/model.pt' for reading: Permission denied\n"),
        Result(0, b"", b"sh: warning: setlocale: LC_ALL: cannot change locale\n"),
    ]
    transport = SimpleNamespace(run=lambda argv, **how: answers.pop(0))
    job: Any = SimpleNamespace(transport=transport, work=tmp_path, host=SimpleNamespace(name="h0"), tell=told.append)
    job.make_results_readable = lambda container: False
    for _ in range(2):
        HostJob.renew_results(cast("HostJob", job), "v2", TWO.nodes[0].container)
    assert told == [
        "h0 goes on with older output files: cp: cannot open 'code/v1/model.pt' for reading: Permission denied"
    ]
