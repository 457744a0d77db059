"""Links among output files, which containers make: a copy of what they lead to may be none of theirs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from tests.deploy.host.test_unreadable_results import send


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work directory with two versions of the code, and beside it a file of the user's."""
    made = tmp_path / "work"
    for version in ("v1", "v2"):
        (made / "code" / version).mkdir(parents=True)
    (made / ".results").write_bytes(b"./model.pt\0./sub/model.pt\0")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.pt").write_text("a key")
    return made


def renew(work: Path) -> int:
    return subprocess.run(SCRIPTS.argv("renew_results", str(work), "v2")).returncode


@pytest.mark.parametrize("linked", ["model.pt", "sub"])
def test_the_next_version_gets_no_file_from_elsewhere(work: Path, linked: str) -> None:
    mine = work.parent / "mine"
    (work / "code" / "v1" / linked).symlink_to(mine / "model.pt" if linked == "model.pt" else mine)
    assert renew(work) == 0
    check(work / "code" / "v2", mine, linked)
    results = ("./model.pt", "./sub/model.pt")
    argv = SCRIPTS.argv("send_code", str(work / "code"), "v3", "v1", "0", "10240", "0", "0", *results)
    assert subprocess.run(argv, input=bytes(10240)).returncode == 0
    check(work / "code" / "v3", mine, linked)


def check(version: Path, mine: Path, linked: str) -> None:
    """There is no copy. What a link leads to may be there in a container, too, as a checkpoint is."""
    assert [path for path in version.rglob("*") if path.is_file() and not path.is_symlink()] == []
    if linked == "model.pt":
        assert os.readlink(version / linked) == f"{mine}/{linked}"


def test_the_next_version_gets_what_a_link_leads_to_in_the_code(work: Path) -> None:
    (work / "code" / "v1" / "step-3.pt").write_text("weights")
    (work / "code" / "v1" / "model.pt").symlink_to("step-3.pt")
    assert renew(work) == 0
    made = work / "code" / "v2" / "model.pt"
    assert (made.is_symlink(), made.read_text()) == (False, "weights")
    assert send(work / "code", "v3", "v1").code == 0
    made = work / "code" / "v3" / "model.pt"
    assert (made.is_symlink(), made.read_text()) == (False, "weights")


def test_nothing_is_written_elsewhere(work: Path) -> None:
    (work / "code" / "v1" / "sub").mkdir()
    (work / "code" / "v1" / "sub" / "model.pt").write_text("theirs")
    os.utime(work.parent / "mine" / "model.pt", (1, 1))
    (work / "code" / "v2" / "sub").symlink_to(work.parent / "mine")
    assert renew(work) != 0
    assert [(path.name, path.read_text()) for path in (work.parent / "mine").iterdir()] == [("model.pt", "a key")]


def test_a_newer_file_has_the_time_and_the_mode_that_it_had(work: Path) -> None:
    """Else it would be newer still, and copied each time. In a folder that `give` shares, the containers' group may write."""
    file = work / "code" / "v1" / "model.pt"
    file.write_text("weights")
    file.chmod(0o640)
    os.utime(file, (5, 5))
    (work / "code" / "v2").chmod(0o2775)
    assert renew(work) == 0
    made = (work / "code" / "v2" / "model.pt").stat()
    assert (made.st_mtime, made.st_mode & 0o777) == (5, 0o660)
    assert os.listdir(work / "code" / "v2") == ["model.pt"]
