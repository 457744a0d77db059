"""One changed line of the code travels alone."""

from __future__ import annotations

from pathlib import Path

from tests.fleet.files.changed_line import line

SIZE = 4_000_000


def test_one_changed_line_travels_alone(can_have_fleet: None, tmp_path: Path) -> None:
    with line(tmp_path, 4, SIZE) as job:
        first, again = job.prepare(), job.prepare()
        assert SIZE < first.sent < 1.1 * SIZE
        job.change("second")
        changed = job.prepare()
        assert job.hosts_with("second") == 4
        assert changed.sent - again.sent < 20_000  # the script, in an archive
