"""Reading logs of any size: what is printed of them, and how little is read."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.logs import reader as reading
from jobctl.jobspec.deploy.logs.files import Folder, Want
from jobctl.jobspec.deploy.logs.reader import MAX_LINE_BYTES, Logs
from jobctl.jobspec.deploy.model.log_lines import Line, LineSelection
from jobctl.jobspec.launcher.process import log_files
from jobctl.jobspec.launcher.process.log_files import LogFile
from tests.tools.own_time import set_time

BEGAN = 1_000_000.0


class Counting(Folder):
    """A folder that counts what is read of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.count = 0

    def read(self, wants: Sequence[Want]) -> Mapping[Want, bytes]:
        found = super().read(wants)
        self.count += sum(map(len, found.values()))
        return found


class Job:
    """The files of node 0 of a job, generation 1."""

    def __init__(self, root: Path) -> None:
        self.source = Counting(root)
        self.logs, self.records = root / "node-0" / "logs" / "1", root / "node-0" / "processes" / "1"
        self.logs.mkdir(parents=True)
        self.records.mkdir(parents=True)
        (self.records / "0.json").write_text(json.dumps({"rank": 3}))

    def write(self, name: str, *parts: tuple[float, bytes]) -> None:
        """Append to a log, and to its index."""
        with (self.logs / name).open("ab") as log, (self.logs / f"{name}.idx").open("ab") as index:
            for at, data in parts:
                index.write(struct.pack("<Qd", log.tell(), BEGAN + at))
                log.write(data)

    def texts(self, *, last: int | None = None, **chosen: float) -> list[bytes]:
        """Return the lines that `logs` prints."""
        return [line.text for line in Logs(self.source, LineSelection(**chosen), last).lines(final=True)]  # type: ignore[arg-type]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def large(job: Job, count: int = 200_000) -> int:
    """Write a log of a line a second, a megabyte at least; return the size of log and index."""
    with (job.logs / "workerlog.0").open("wb") as log, (job.logs / "workerlog.0.idx").open("wb") as index:
        for number in range(count):
            index.write(struct.pack("<Qd", log.tell(), BEGAN + number))
            log.write(b"step %07d of very many\n" % number)
    return sum((job.logs / name).stat().st_size for name in ("workerlog.0", "workerlog.0.idx"))


def test_since_does_not_read_what_was_before(job: Job) -> None:
    size = large(job)
    assert job.texts(since=BEGAN + 199_998) == [b"step 0199998 of very many", b"step 0199999 of very many"]
    assert job.source.count < 100_000 < size / 50
    job.source.count = 0
    assert len(job.texts(since=BEGAN + 100_000)) == 100_000
    assert job.source.count < size * 0.6


def test_lines_of_several_processes_are_merged_by_their_times(job: Job) -> None:
    (job.records / "1.json").write_text(json.dumps({"rank": 4}))
    job.write("workerlog.0", (0, b"first\n"), (3, b"fourth\n"))
    job.write("workerlog.1", (1, b"second\nalso second\n"), (2, b"third\n"))
    assert job.texts() == [b"first", b"second", b"also second", b"third", b"fourth"]
    assert job.texts(rank=4) == [b"second", b"also second", b"third"]


def test_since_is_no_other_choice_than_that_of_all_lines_by_their_times(job: Job) -> None:
    for number in range(40):
        job.write("workerlog.0", (number, b"a%d " % number), (number + 0.5, b"b\nc%d\n" % number))
    every = list(Logs(job.source, LineSelection()).lines(final=True))
    for moment in (-1.0, 0.0, 0.5, 7.0, 7.2, 7.5, 39.5, 39.9, 50.0):
        expected = [line.text for line in every if line.time >= BEGAN + moment]
        assert job.texts(since=BEGAN + moment) == expected


def test_the_current_generation_counts_whatever_the_clock_of_its_host_says(job: Job) -> None:
    """The job was begun by a machine whose clock is ahead."""
    job.write("workerlog.0", (0.0, b"earlier\n"))
    job.logs = job.logs.with_name("2")
    job.logs.mkdir()
    job.write("launch.log", (1.0, b"now\n"))
    assert job.texts(since=BEGAN + 100, current=2, launcher=True) == [b"now"]
    assert job.texts(since=BEGAN + 100, current=3, launcher=True) == []
    assert job.texts(since=BEGAN, current=1, launcher=True) == [b"earlier", b"now"]


def test_a_log_that_ended_before_is_not_read_and_read_on(job: Job) -> None:
    job.write("workerlog.0", (0.0, b"old\n"))
    os.utime(job.logs / "workerlog.0", (BEGAN, BEGAN))
    logs = Logs(job.source, LineSelection(since=BEGAN + 100))
    assert list(logs.lines()) == []
    job.write("workerlog.0", (200.0, b"new\n"))
    assert [line.text for line in logs.lines()] == [b"new"]


def test_the_last_lines_are_read_from_the_end(job: Job) -> None:
    size = large(job)
    assert job.texts(last=2) == [b"step 0199998 of very many", b"step 0199999 of very many"]
    assert len(job.texts(last=100_000)) == 100_000
    job.source.count = 0
    job.texts(last=2)
    assert job.source.count < 200_000 < size / 25


def test_the_last_lines_since_a_moment_are_all_of_them(job: Job) -> None:
    for number in range(10):
        job.write("workerlog.0", (number, b"%d\n" % number))
    assert job.texts(since=BEGAN + 3, last=2) == [b"8", b"9"]
    assert job.texts(since=BEGAN + 8, last=5) == [b"8", b"9"]


@pytest.mark.parametrize(("text", "last"), [(b"a\nb\nc", 2), (b"a\nb\nc\n", 2), (b"\n\n\n", 2), (b"a", 2), (b"", 2)])
def test_the_last_lines_are_the_last_of_all(job: Job, text: bytes, last: int) -> None:
    job.write("workerlog.0", (0.0, text))
    assert job.texts(last=last) == job.texts()[-last:]


def test_the_last_lines_have_the_times_that_they_have_among_all(job: Job) -> None:
    job.write("workerlog.0", *((number, b"line %d\n" % number) for number in range(9)))
    every = list(Logs(job.source, LineSelection()).lines(final=True))
    assert list(Logs(job.source, LineSelection(), 3).lines(final=True)) == every[-3:]


def test_a_log_that_somebody_has_emptied_is_read_from_its_start(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(BEGAN + at for at in range(10))
    monkeypatch.setattr(log_files.time, "time", lambda: next(now))
    path = job.logs / "workerlog.0"
    written = LogFile(str(path))
    follower = Logs(job.source, LineSelection())

    def shown(logs: Logs = follower) -> list[tuple[float, bytes]]:
        return [(line.time - BEGAN, line.text) for line in logs.lines()]

    written.write(b"step 1\n")
    written.write(b"step 2\nstep")
    assert shown() == [(0, b"step 1"), (1, b"step 2")]
    os.truncate(path, 0)
    assert shown() == []
    written.write(b"step 3\n")
    assert shown() == [(2, b"step 3")]
    written.write(b"step 4\n")
    assert shown() == [(3, b"step 4")]
    os.truncate(path, 0)
    LogFile(str(path)).write(b"again\n")
    assert shown() == [(4, b"again")]
    assert shown(Logs(job.source, LineSelection())) == [(4, b"again")]


def test_a_log_whose_index_tells_of_bytes_that_are_gone_has_the_time_of_its_file(job: Job) -> None:
    """A launcher of 0.2.0 goes on with the index of a log that somebody has emptied."""
    job.write("workerlog.0", (0, b"long ago, and much of it\n"))
    logs = Logs(job.source, LineSelection())
    assert [line.time for line in logs.lines()] == [BEGAN]
    os.truncate(job.logs / "workerlog.0", 0)
    with (job.logs / "workerlog.0.idx").open("ab") as index:
        index.write(struct.pack("<Qd", 25, BEGAN + 3))
    (job.logs / "workerlog.0").write_bytes(b"now\n")
    os.utime(job.logs / "workerlog.0", (BEGAN + 5, BEGAN + 5))
    assert [(line.time, line.text) for line in logs.lines()] == [(BEGAN + 5, b"now")]


def test_a_progress_bar_shows_its_last_state_at_times(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    set_time(monkeypatch, reading, monotonic=lambda: now)
    logs = Logs(job.source, LineSelection())
    seen: list[Line] = []

    def look() -> list[bytes]:
        found = list(logs.lines())
        seen.extend(found)
        return [line.text for line in found]

    job.write("workerlog.0", (0.0, b"\r  1%"), (1.0, b"\r  2%"))
    assert look() == [b"  2%"]
    job.write("workerlog.0", (2.0, b"\r  3%"))
    assert look() == []
    now += 0.6
    job.write("workerlog.0", (3.0, b"\r 99%"))
    assert look() == [b" 99%"]
    now += 0.6
    assert look() == []
    job.write("workerlog.0", (4.0, b"\r100%\nready\n"))
    assert look() == [b"100%", b"ready"]
    assert [line.time - BEGAN for line in seen] == [1.0, 3.0, 4.0, 4.0]
    assert job.texts() == [b"100%", b"ready"]


def test_a_state_that_was_shown_is_not_shown_again_when_its_line_ends(job: Job) -> None:
    logs = Logs(job.source, LineSelection())
    job.write("workerlog.0", (0.0, b"\r100%"))
    assert [line.text for line in logs.lines()] == [b"100%"]
    job.write("workerlog.0", (1.0, b"\n"), (2.0, b"100%\nwindows\r\n"))
    assert [line.text for line in logs.lines()] == [b"100%", b"windows"]


def test_a_line_without_end_takes_bounded_memory(job: Job) -> None:
    logs = Logs(job.source, LineSelection())
    job.write("workerlog.0", (0.0, b"x" * (10 << 20)))
    parts = [line.text for line in logs.lines()]
    (tail,) = logs.tails.values()
    assert max(map(len, parts)) == MAX_LINE_BYTES
    assert len(tail.rest) <= MAX_LINE_BYTES
    assert sum(map(len, parts)) + len(tail.rest) == 10 << 20


def test_logs_are_logs_only(job: Job) -> None:
    job.write("workerlog.0", (0.0, b"step\n"))
    for name in ("nccl_trace_rank_0", "endpoints.log", "stack.0.new"):
        (job.logs / name).write_bytes(b"\x80\x04 no log\n")
    assert job.texts() == [b"step"]


def test_stacks_are_lines_of_their_ranks_unless_the_rank_has_printed_them_itself(job: Job) -> None:
    (job.logs / "stack.0").write_bytes(b"Process 7: python train.py\n  main\n")
    found = list(Logs(job.source, LineSelection(rank=3)).lines(final=True))
    assert [(line.rank, line.text) for line in found] == [(3, b"Process 7: python train.py"), (3, b"  main")]
    (job.logs / "stack.0").write_bytes(b"Current thread 0x01 (most recent call first):\n  main\n")
    assert job.texts() == []


def test_a_node_that_is_removed_meanwhile_has_no_logs(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `scale`, while somebody follows: when a folder is listed that was there a moment before."""
    scandir = os.scandir
    job.write("workerlog.0", (0.0, b"stays\n"))
    removed = tmp_path / "node-1" / "logs" / "1"
    removed.mkdir(parents=True)
    (removed / "workerlog.0").touch()

    def listed(path: str | Path | int) -> Any:  # a number is a folder that `rmtree` has open
        if not isinstance(path, int) and os.fspath(path).startswith(str(removed)):
            shutil.rmtree(tmp_path / "node-1", ignore_errors=True)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    assert job.texts() == [b"stays"]
    assert not removed.exists()


def test_a_file_that_is_removed_meanwhile_is_left_out(job: Job) -> None:
    job.write("workerlog.0", (0.0, b"stays\n"))
    (job.logs / "workerlog.1").symlink_to("gone")
    assert {key.path.name for key in job.source.files()} == {"workerlog.0", "workerlog.0.idx", "0.json"}
    assert job.texts() == [b"stays"]


def test_what_is_ahead_of_others_is_read_when_its_turn_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of an hour later is not taken into memory while an earlier one is printed."""
    monkeypatch.setattr(reading, "MAX_READ_BYTES", 1 << 10)
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1 << 10)
    job = Job(tmp_path)
    (job.records / "1.json").write_text(json.dumps({"rank": 4}))
    for name, begun in (("workerlog.0", 0.0), ("workerlog.1", 3600.0)):
        job.write(name, *((begun + number, b"%s %d\n" % (name.encode(), number)) for number in range(1000)))
    logs, most, texts = Logs(job.source, LineSelection()), 0, []
    for line in logs.lines(final=True):
        texts.append(line.text)
        most = max(most, sum(len(tail.lines) for tail in logs.tails.values()))
    assert texts == [b"%s %d" % (name, number) for name in (b"workerlog.0", b"workerlog.1") for number in range(1000)]
    assert most < 200


def test_a_clock_that_was_set_back_hides_and_repeats_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was started again alone goes on with the log, and with an index whose times are earlier then."""
    for limit in ("MAX_READ_BYTES", "MAX_LINE_BYTES"):
        monkeypatch.setattr(reading, limit, 64)
    job = Job(tmp_path)
    (job.records / "1.json").write_text(json.dumps({"rank": 4}))
    lines = [b"line %02d" % number for number in range(60)]
    for name, back in (("workerlog.0", 20.5), ("workerlog.1", 0.0)):
        job.write(name, *((n - back * (n >= 30), line + b"\n") for n, line in enumerate(lines)))
    found = list(Logs(job.source, LineSelection()).lines(final=True))
    assert [[line.text for line in found if line.rank == rank] for rank in (3, 4)] == [lines, lines]
    assert found[-1].time - BEGAN == 59.0
    assert {line.time - BEGAN for line in found if line.rank == 3 and line.text == b"line 30"} == {9.5}
