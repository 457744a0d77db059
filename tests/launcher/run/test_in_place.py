"""When a launcher gives up on processes that fail again and again while the framework's launcher starts them each time."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobctl.jobspec.launcher.process.guard import Recorder
from jobctl.jobspec.launcher.process.record import ProcessRecord, read_record
from jobctl.jobspec.launcher.run.in_place import InPlaceFailures

Try = tuple[Sequence[int], int | None, float]  # how the processes ended in turn, the last step, seconds


class Played:
    """Processes of a node, with the guards' records in `folder` and a clock that stands still."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None) -> None:
        self.folder, self.now, self.failures = folder, 1000.0, InPlaceFailures(limit)
        monkeypatch.setattr("time.time", lambda: self.now)

    def records(self) -> list[ProcessRecord]:
        """Return what the guards have written."""
        return [record for path in sorted(self.folder.glob("*.json")) if (record := read_record(str(path)))]

    def play(self, codes: Sequence[int], step: int | None, seconds: float, *, seen: bool = True) -> bool:
        """Start the processes, end them in turn, and say whether the launcher gives up then."""
        guards = [Recorder(str(self.folder / f"{n}.json"), str(n), str(n)) for n in range(len(codes))]
        for guard in guards:
            guard.began(os.getpid(), False, None)
        assert not self.failures.look(self.records(), step)
        self.now += seconds
        for guard, code in zip(guards, codes, strict=True):
            self.now += 0.1
            guard.ended(code)
        return seen and self.failures.look(self.records(), step)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Played:
    """Processes that may start again as often without progress as the test says, or three times."""
    return Played(tmp_path, monkeypatch, getattr(request, "param", 3))


SAME: Try = ([7], 40, 5.0)
FAST: Try = ([7], None, 5.0)
SLOW: Try = ([7], None, 70.0)
JOINED: Try = ([143], 40, 5.0)  # another node has come or left


@pytest.mark.parametrize(
    ("played", "tries", "given_up"),
    [
        (3, [SAME] * 4, [False, False, False, True]),
        (0, [SAME], [True]),
        (None, [SAME] * 4, [False] * 4),
        (3, [FAST] * 4, [False, False, False, True]),
        (3, [SLOW] * 6, [False] * 6),
        (1, [([7], step, 5.0) for step in (10, 20, 30, 40, 50)], [False] * 5),
        (1, [JOINED] * 5, [False] * 5),
        (1, [SAME, JOINED, SAME], [False, False, True]),
        (1, [SAME, SAME, JOINED], [False, True, False]),
        (1, [([137], 40, 5.0)] * 2, [False, True]),  # out of memory, each time
        (1, [([143, 1], 40, 5.0)] * 3, [False] * 3),  # what has lost a peer that was ended fails by itself
        (1, [([1, 143], 40, 5.0)] * 2, [False, True]),
        (1, [([0], 40, 5.0)] * 3, [False] * 3),
    ],
    indirect=["played"],
)
def test_failures_in_a_row_are_too_many_and_nodes_that_come_are_not(
    played: Played, tries: list[Try], given_up: list[bool]
) -> None:
    assert [played.play(*one) for one in tries] == given_up


def test_a_launcher_reads_what_guards_of_a_newer_version_write(played: Played) -> None:
    """An upgrade replaces the program of guards, and the launcher lives on."""
    for _ in range(2):
        played.play(*SAME)
    (before,), path = played.records(), played.folder / "0.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "guard_new": 1, "guard_before": {**written["guard_before"], "new": 1}}))
    assert played.records() == [before]


def test_a_failure_that_nobody_saw_counts(played: Played) -> None:
    """The time between an end and the next start may be too short."""
    assert [played.play(*SAME, seen=False) for _ in range(3)] == [False] * 3
    assert played.play(*SAME)
