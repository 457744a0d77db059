"""The report of a launcher, in whose place another one may start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.report.node_report import DECLARED_DEAD, StandbyState
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.report.report import Report
from tests.tools.launches import launch_of

ORDER: Any = SimpleNamespace(began=2.0, number=5, base=None)
NEXT: Any = SimpleNamespace(began=2.0, number=6)
AGES = ((2.0, 4), (2.0, 5), (1.0, 9), (2.0, 6), (3.0, 1))


def report_in(folder: Path, guard: int) -> Report:
    """Begin the report of node 0 of a launcher with this guard."""
    return Report(launch_of(), str(folder), guard, None, StandbyState("off", "none here"))


def test_a_launcher_that_was_declared_dead_writes_no_more(tmp_path: Path) -> None:
    first = report_in(tmp_path, os.getpid())
    first.write(state="running")
    (tmp_path / DECLARED_DEAD).write_text(json.dumps(json.loads((tmp_path / "report.json").read_text())["launcher"]))
    second = report_in(tmp_path, os.getppid())
    second.write(reason="waits for a lease")
    assert (first.replaced(), second.replaced()) == (True, False)
    first.write(state="failed")
    assert json.loads((tmp_path / "report.json").read_text())["reason"] == "waits for a lease"


@pytest.mark.parametrize(
    ("base", "new"), [(None, [False, False, False, True, True]), ("any", [True, False, True, True, True])]
)
def test_which_orders_no_earlier_launcher_has_begun(tmp_path: Path, base: str | None, new: list[bool]) -> None:
    """By when the job was brought up, and then by its number; those that have a base are not in the sequence of their numbers."""
    report = report_in(tmp_path, os.getpid())
    report.write(epoch=2.0, generation=5)
    orders: list[Any] = [SimpleNamespace(began=began, number=number, base=base) for began, number in AGES]
    assert [report.has_not_begun(order) for order in orders] == new


@pytest.mark.parametrize(
    ("left", "known"),
    [(b"", True), (b'{"generation": 5, "ep', True), (b"\0", True), (None, False)],
    ids=["empty", "cut off", "zeros", "removed"],
)
def test_a_report_that_a_power_cut_has_emptied_is_not_one_of_a_new_node(
    tmp_path: Path, left: bytes | None, known: bool
) -> None:
    """A node whose report a deployer has removed is new."""
    first = report_in(tmp_path, os.getpid())
    first.write(epoch=2.0, generation=5, state="running")
    first.write(progress=45)
    (tmp_path / "report.json").unlink()
    if left is not None:
        (tmp_path / "report.json").write_bytes(left)
    again = report_in(tmp_path, os.getppid())
    assert (again.has_not_begun(ORDER), again.is_of(ORDER)) == (not known, known)


def test_a_launcher_knows_how_far_the_one_before_it_was_in_the_same_generation(tmp_path: Path) -> None:
    first, order = report_in(tmp_path, os.getpid()), ORDER
    first.write(epoch=2.0, generation=5, state="running", started_at=100.0, progress=45)
    assert first.headway(order, 107.0) == Headway(45, 7.0)
    again = report_in(tmp_path, os.getppid())
    assert (again.fields.progress, again.headway(order, 107.0)) == (None, Headway(45, 0.0))
    again.write(generation=6)
    assert [again.headway(one, 107.0) for one in (order, NEXT, None)] == [Headway()] * 3


def test_a_node_has_run_until_it_ended(tmp_path: Path) -> None:
    report = report_in(tmp_path, os.getpid())
    report.write(epoch=2.0, generation=5, state="failed", started_at=100.0, finished_at=104.0)
    assert report.headway(ORDER, 900.0) == Headway(None, 4.0)


def test_a_supervisor_hears_at_once_that_a_standby_is_ready(tmp_path: Path) -> None:
    """It may wait for that before more nodes join; how far the imports have come is of no interest."""
    report = report_in(tmp_path, os.getpid())
    report.write(standby=StandbyState("warming", None))
    assert not report.write(standby=StandbyState("warming", "it is begun after the first step"))
    assert report.write(standby=StandbyState("ready", None))


def test_a_launcher_whose_folder_was_removed_ends_once_nothing_runs(tmp_path: Path) -> None:
    """In a container, that folder goes on to be there: by its handle, here."""
    folder = tmp_path / "node-0"
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY)
    report = report_in(Path(f"/proc/self/fd/{handle}"), os.getpid())
    report.write(state="running")
    assert report.superseded(runs=False) is None
    for file in folder.iterdir():
        file.unlink()
    folder.chmod(0o500)
    report.unwritten = 1.0
    assert report.superseded(runs=False) is None  # a disk that is full, for example
    folder.rmdir()
    report.write(state="failed")
    assert (report.superseded(runs=True), "has removed" in (report.superseded(runs=False) or "")) == (None, True)
    os.close(handle)
