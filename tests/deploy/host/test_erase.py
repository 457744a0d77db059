"""What is removed of a job on a host, and what stays. This machine's `sh` runs the scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host


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


def test_what_was_given_up_removes_nothing_more_once_another_command_has_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `down` that waits no longer for a slow disk leaves its script behind there."""
    work, slow = tmp_path / "h1" / "job", tmp_path / "bin" / "rm"
    for folder in (work / "code", work / "run", slow.parent):
        folder.mkdir(parents=True)
    (work / "lock").write_text('{"command": "down"}')
    slow.write_text(f"""#!/bin/sh\n/bin/rm "$@"\n[ "$1" = -f ] || echo '{{"command": "up"}}' > {work}/lock\n""")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:/usr/bin:/bin")
    done = subprocess.run(SCRIPTS.argv("erase", str(work), str(work)), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"another command has the lock\n")
    assert sorted(path.name for path in work.iterdir()) == ["lock", "run"]


class Timed(LocalTransport):
    """This machine as a host; `silence` is how long the last command may say nothing, in seconds."""

    silence = 0.0

    def run(self, argv: Any, stdin: Any = b"", *, timeout: float = 60.0) -> Any:
        self.silence = timeout
        return super().run(argv, stdin, timeout=timeout)


def test_to_remove_a_job_may_take_minutes(tmp_path: Path) -> None:
    """As millions of files of outputs do on a disk that turns."""
    host = Timed("h1")
    host_job = HostJob(Host("h1", dir=str(tmp_path / "dir")), host, "job", "ssh")
    host_job.send([], ["run"])
    host_job.erase()
    assert (host.silence, (tmp_path / "dir").exists()) == (600.0, False)
