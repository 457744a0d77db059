"""What is removed of a job on a host, and what stays. This machine's `sh` runs the scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS


def run(name: str, *arguments: str | Path) -> None:
    subprocess.run(SCRIPTS.argv(name, *map(str, arguments)), check=True)


def erase(folder: Path) -> None:
    work = folder / "h1" / "job"
    run("erase", work, work)


def remove_data(folder: Path) -> None:
    run("remove_data", folder / "h1" / "data", "wiki/v1")


def forget(folder: Path) -> None:
    (folder / ".check-token").touch()
    run("forget", folder, "token")


LEFT = {erase: "h1/job/node-0", remove_data: "h1/data/wiki/v1", forget: "."}


@pytest.mark.parametrize("remove", LEFT, ids=lambda remove: remove.__name__)
def test_a_directory_that_was_there_before_stays(tmp_path: Path, remove: object) -> None:
    """Such as /var/tmp or /scratch: root could remove it. What jobctl has made below it goes."""
    assert callable(remove)
    before = tmp_path / "scratch"
    before.mkdir()
    before.chmod(0o1777)
    ours = before / "team" / "jobs"
    for folder in (ours.parent, ours):
        folder.mkdir(0o700)  # as jobctl makes them
    (ours / LEFT[remove]).mkdir(parents=True, exist_ok=True)
    remove(ours)
    assert (before.exists(), list(before.iterdir())) == (True, [])


@pytest.mark.parametrize("remove", LEFT, ids=lambda remove: remove.__name__)
def test_the_home_of_who_logs_in_stays(tmp_path: Path, remove: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(remove)
    home = tmp_path / "root"
    home.mkdir(0o700)
    monkeypatch.setenv("HOME", str(home))
    (home / ".jobctl" / LEFT[remove]).mkdir(parents=True)
    remove(home / ".jobctl")
    assert (home.exists(), list(home.iterdir())) == (True, [])
