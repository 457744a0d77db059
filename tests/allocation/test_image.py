"""The image of a job in containers: fetched once for all who want it, whoever of them dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.allocation.image import FETCH_RETRY_INTERVAL, FETCHES, JobImage
from jobctl.jobspec.render.launcher import allocation
from tests.slurm.cluster import wait_for

# Fetches as slowly as the test wants: until there is a file `enough`.
_START = """\
echo "$$" >>"$(dirname "$0")/fetches"
exec 3>"$2"
echo part >&3
while [ ! -e "$(dirname "$0")/enough" ]; do sleep 0.02; done
[ ! -e "$(dirname "$0")/refuses" ] || { echo progress >&2; echo "no such image" >&2; exit 125; }
echo whole >&3
"""

# Runs a program on storage that has no locks.
_WITHOUT_LOCKS = """\
import errno, fcntl, runpy, sys
def lockf(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.lockf = lockf
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Work:
    """A job's directory, with a script that plays the engine."""

    def __init__(self, directory: Path, pull: str = "missing") -> None:
        self.directory, self.file = directory, directory / "images" / "one" / "image.tar"
        told = {"name": "torch:1", "file": str(self.file), "fetch": True, "pull": pull}
        self.settings: dict[str, Any] = {"image": told, "runner_python": sys.executable}
        (directory / "slurm.json").write_text(json.dumps(self.settings))
        (directory / "start.sh").write_text(_START)
        (directory / "allocation.py").write_bytes(allocation())

    def fetch(self, *, locks: bool = True) -> subprocess.Popen[bytes]:
        """Begin to fetch, as a coordinator does."""
        argv = [sys.executable, *([] if locks else ["-c", _WITHOUT_LOCKS])]
        argv += [str(self.directory / "allocation.py"), "image", "--work", str(self.directory)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @property
    def fetches(self) -> int:
        """How often the engine was asked."""
        path = self.directory / "fetches"
        return len(path.read_text().split()) if path.exists() else 0

    def enough(self) -> None:
        """Let the engine end."""
        (self.directory / "enough").touch()

    def is_settled(self) -> bool:
        """Say whether the image is there, and nothing else but its lock."""
        return self.file.read_text() == "part\nwhole\n" and sorted(os.listdir(self.file.parent)) == [
            "image.tar",
            "lock",
        ]


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def waits(one: subprocess.Popen[bytes]) -> bool:
    assert one.stderr is not None
    return b"waits for it" in one.stderr.readline()


def test_of_several_that_want_it_at_once_one_fetches(work: Work) -> None:
    first = work.fetch()
    wait_for(lambda: work.fetches == 1, "the engine")
    others = [work.fetch(), work.fetch()]
    assert [waits(other) for other in others] == [True, True]
    assert not work.file.exists()
    work.enough()
    assert [one.wait() for one in (first, *others)] == [0, 0, 0]
    assert (work.fetches, work.is_settled()) == (1, True)


def test_when_the_one_that_fetches_dies_another_does_it(work: Work) -> None:
    first = work.fetch()
    wait_for(lambda: work.fetches == 1, "the engine")
    second = work.fetch()
    assert waits(second)
    first.kill()
    wait_for(lambda: work.fetches == 2, "the engine")
    assert not work.file.exists()
    work.enough()
    assert second.wait() == 0
    assert work.is_settled()


def test_on_storage_without_locks_nobody_removes_what_another_one_fetches(work: Work) -> None:
    first = work.fetch(locks=False)
    wait_for(lambda: work.fetches == 1, "the engine")
    second = work.fetch(locks=False)
    wait_for(lambda: work.fetches == 2, "the second engine")
    work.enough()
    assert [first.wait(), second.wait()] == [0, 0]
    assert work.is_settled()


def test_told_to_end_it_ends_the_engine_too(work: Work) -> None:
    first = work.fetch()
    wait_for(lambda: work.fetches == 1, "the engine")
    engine = int((work.directory / "fetches").read_text())
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 128 + signal.SIGTERM
    assert not Path(f"/proc/{engine}").exists()


def test_it_says_why_it_cannot_and_never_fetches_against_the_spec(work: Work) -> None:
    work.enough()
    (work.directory / "refuses").touch()
    assert work.fetch().communicate()[0] == b"no such image\n"
    assert os.listdir(work.file.parent) == ["lock"]
    said = Work(work.directory, pull="never").fetch().communicate()[0]
    assert said.decode() == f"`pull: never`, and there is no {work.file}\n"
    assert work.fetches == 1


def until_known(image: JobImage, now: float) -> bool:
    """Return what `image` says once what it has begun at `now` is over."""
    image.is_there(now)
    if image.child is not None:
        image.child.wait()
    return image.is_there(now)


def test_a_coordinator_tries_a_few_times_and_says_why_it_gives_up(work: Work) -> None:
    work.enough()
    (work.directory / "refuses").touch()
    image = JobImage(str(work.directory), work.settings)
    tries = [until_known(image, FETCH_RETRY_INTERVAL * turn) for turn in range(FETCHES)]
    assert (tries, image.reason) == ([False] * FETCHES, "fetches image torch:1")
    assert image.problem == "cannot fetch image torch:1: no such image"
    assert not until_known(image, 100.0)
    assert work.fetches == FETCHES


def test_nothing_is_fetched_before_its_time_nor_where_nodes_have_it(work: Work) -> None:
    work.enough()
    (work.directory / "refuses").touch()
    image = JobImage(str(work.directory), work.settings)
    assert not until_known(image, 0.0)
    assert not until_known(image, FETCH_RETRY_INTERVAL - 0.1)
    assert work.fetches == 1
    (work.directory / "refuses").unlink()
    assert until_known(image, FETCH_RETRY_INTERVAL)
    assert (image.reason, image.problem, work.is_settled()) == (None, None, True)
    on_nodes = {"image": {"name": "torch:1", "file": None, "fetch": False}, "runner_python": "python3"}
    assert JobImage("/w", on_nodes).is_there(0.0)
    assert JobImage("/w", {"runner_python": "python3"}).is_there(0.0)
