"""Files that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobctl.jobspec.launcher.system.files import write_json


def test_a_file_that_cannot_be_written_is_told_once_until_it_can(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A report is written several times a second, and the log of a container may have no limit."""
    folder = tmp_path / "node-0"
    told = []
    for there in (True, True, False, True):
        if there:
            folder.write_text("a file, where a folder should be")
        else:
            folder.unlink()
        assert write_json(str(folder / "report.json"), {}) is not there
        told.append(capfd.readouterr().err.count("cannot write"))
        if not there:
            (folder / "report.json").unlink()
            folder.rmdir()
    assert told == [1, 0, 0, 1]
