"""What `pull` copies of a job on this machine, whose processes may write, link and remove things meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.local.deployer import Local
from tests.deploy.apply.test_executor import TWO


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Local:
    """A job on this machine whose outputs are `runs`, in its working directory."""
    monkeypatch.chdir(tmp_path)
    workdir = tmp_path / "workdir"
    (workdir / "runs" / "first").mkdir(parents=True)
    (workdir / "runs" / "first" / "loss").write_text("0.5")
    nodes = tuple(replace(node, launch=replace(node.launch, workdir=str(workdir))) for node in TWO.nodes)
    made = Local(JobDir(tmp_path / "jobs" / "job"), replace(TWO, nodes=nodes, outputs=("runs",)))
    (made.work / "node-0" / "logs").mkdir(parents=True)
    (made.work / "node-0" / "logs" / "launcher.log").write_text("began")
    return made


def fetched(into: Path) -> list[str]:
    return sorted(str(path.relative_to(into / "localhost")) for path in into.rglob("*") if not path.is_dir())


def bind(path: Path) -> None:
    """Make a socket, as servers of profilers and notebooks do."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("gone"),
        lambda path: path.symlink_to("."),
        lambda path: path.symlink_to(path.name),
        os.mkfifo,
        bind,
    ],
    ids=["link to nothing", "link to its folder", "link to itself", "pipe", "socket"],
)
def test_what_no_copy_can_have_is_left_out(local: Local, make: Callable[[Path], object]) -> None:
    os.chdir("workdir/runs")  # the name of a socket is short
    make(Path("odd"))
    os.chdir("../..")
    assert local.fetch(Path("into")) == {"logs": 1, "outputs": 1}
    assert fetched(Path("into")) == ["node-0/logs/launcher.log", "outputs/runs/first/loss"]


def test_links_are_followed(local: Local) -> None:
    Path("workdir/runs/latest").symlink_to("first")
    local.fetch(Path("into"))
    assert fetched(Path("into"))[1:] == ["outputs/runs/first/loss", "outputs/runs/latest/loss"]


def test_what_goes_away_meanwhile_is_left_out(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is removed, say, once there is a newer one."""
    for name in ("step-1", "step-2"):
        Path("workdir/runs", name).mkdir()
        Path("workdir/runs", name, "weights").write_text(name)
    copy = shutil.copy2

    def copy_slowly(source: Any, to: Any) -> Any:
        shutil.rmtree("workdir/runs/step-2", ignore_errors=True)
        if source.parent.name == "step-1":
            source.unlink()
        return copy(source, to)

    monkeypatch.setattr(shutil, "copy2", copy_slowly)
    assert local.fetch(Path("into")) == {"logs": 1, "outputs": 1}
    assert fetched(Path("into"))[1:] == ["outputs/runs/first/loss"]


def test_a_folder_within_the_outputs_is_not_copied_into_itself(local: Local) -> None:
    for _ in range(2):
        local.fetch(Path("workdir/runs/into"))
    assert fetched(Path("workdir/runs/into"))[1:] == ["outputs/runs/first/loss"]


def test_a_file_that_nobody_may_write_is_fetched_again(local: Local) -> None:
    """It is replaced; to write into it is what only root can do."""
    source, to = Path("workdir/runs/first/loss"), Path("into/localhost/outputs/runs/first/loss")
    source.chmod(0o444)
    local.fetch(Path("into"))
    os.link(to, "first")
    local.fetch(Path("into"))
    assert (to.samefile("first"), to.read_text(), to.stat().st_mode & 0o777) == (False, "0.5", 0o444)


def test_a_file_that_cannot_be_read_is_told(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Any, to: Any) -> None:
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr(shutil, "copy2", refuse)
    with pytest.raises(PermissionError, match="Permission denied"):
        local.fetch(Path("into"))


def test_a_full_disk_is_that_of_the_copy(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(source: Any, to: Any) -> None:
        Path(to).write_text("ha")
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(to))  # as `copy2` says it

    monkeypatch.setattr(shutil, "copy2", fill)
    to = Path("into/localhost/outputs/runs/first/loss")
    with pytest.raises(OSError, match="No space left") as caught:
        local.fetch(Path("into"))
    assert (caught.value.filename, to.exists()) == (str(to), False)


def test_what_down_has_collected_on_hosts_is_fetched_too(local: Local) -> None:
    """What reads the history after `down` is this machine, wherever the job ran."""
    for name in ("outputs/h0/runs/loss", "outputs/h1/runs/loss", "node-1/logs/launcher.log"):
        path = local.job.history / "2026-01-01T00-00-00Z" / name
        path.parent.mkdir(parents=True)
        path.write_text(name)
    shutil.rmtree(local.work)
    down = Local(local.job, None)
    assert down.fetch(Path("into")) == {"logs": 1, "outputs": 2}
    found = sorted(str(path) for path in Path("into").rglob("*") if path.is_file())
    assert found == [
        "into/localhost/node-1/logs/launcher.log",
        "into/outputs/h0/runs/loss",
        "into/outputs/h1/runs/loss",
    ]


def test_what_one_down_has_left_to_the_next_is_fetched_with_it(local: Local) -> None:
    for moment, host, names in ((1, "h0", ("0/logs/a.log", "1/logs/a.log")), (3, "h1", ("1/logs/a.log",))):
        folder = local.job.history / str(moment)
        for name in (f"outputs/{host}/loss", "outputs/h2/loss", *(f"node-{name}" for name in names)):
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text(str(moment))
        os.utime(folder, (moment, moment))
    events.record(local.job.events, 2.0, "down", "", failed=["h1"])
    shutil.rmtree(local.work)
    assert Local(local.job, None).fetch(Path("into")) == {"logs": 2, "outputs": 3}
    found = {str(path.relative_to("into")): path.read_text() for path in Path("into").rglob("*") if path.is_file()}
    assert found == {
        "localhost/node-0/logs/a.log": "1",
        "localhost/node-1/logs/a.log": "3",
        "outputs/h0/loss": "1",
        "outputs/h1/loss": "3",
        "outputs/h2/loss": "3",
    }
