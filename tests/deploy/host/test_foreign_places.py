"""What others have made where a job's folder is to be, as in /scratch: nothing is removed or written there.

In each test a link leads from there to the home of the user, or a folder belongs to somebody else.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import hold_on
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host
from tests.tools.foreign import plays_owner

OWN = "own/h1/job"  # where what must be the host's own lies, in some of these tests
Make = Callable[[Path], None]


@pytest.fixture
def host_job(tmp_path: Path) -> HostJob:
    return HostJob(Host("h1", dir=str(tmp_path / "scratch")), LocalTransport("h1"), "job", "ssh")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of the user, with files in each place that a link may make look like a job's."""
    home = tmp_path / "home"
    for folder in ("job", "run/feeds", "job/run", "wiki/v1"):
        (home / folder).mkdir(parents=True)
    for file in ("thesis", "job/thesis", "run/feeds/thesis", "lock", "wiki/v1/thesis"):
        (home / file).write_text("years of work")
    return home


def links(path: str) -> Callable[[Path], None]:
    """Return what makes a link to the home at `path`."""

    def make(top: Path) -> None:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).symlink_to(top / "home")

    return make


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


LINKS = {"host": links("scratch/h1"), "job": links("scratch/h1/job"), "own": links(OWN), "above": links("own/h1")}


def refused(what: Callable[[], object]) -> HostError:
    with pytest.raises(HostError, match=r"^h1: .*Permission denied") as caught:
        what()
    assert (caught.value.code, caught.value.hint) == (
        "no-permission",
        "choose a directory of your own with `dir=` in the hosts file",
    )
    return caught.value


@pytest.mark.parametrize("make", LINKS.values(), ids=LINKS)
def test_nothing_is_removed_through_a_link(host_job: HostJob, tmp_path: Path, home: Path, make: Make) -> None:
    """Not by a container with root's rights either: the error would be that of its engine, which is not there."""
    before = files_in(home)
    make(tmp_path)
    host_job.use_directories(str(tmp_path / "scratch/h1/job"), str(tmp_path / OWN))
    refused(lambda: host_job.erase([("image", "python3")]))
    refused(lambda: host_job.remove([str(home / "thesis")]))
    assert files_in(home) == before


@pytest.mark.parametrize("whose", ["h1", "job"])
def test_nothing_is_removed_from_a_folder_of_somebody_else(
    host_job: HostJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    work = tmp_path / "scratch/h1/job"
    work.mkdir(parents=True)
    (work / "theirs").touch()
    plays_owner(tmp_path / "bin", monkeypatch, whose)
    assert f"{whose} belongs to somebody else" in refused(host_job.erase).message
    assert (work / "theirs").exists()


@pytest.mark.parametrize(("uid", "squashed"), [(0, False), (65534, True)])
def test_what_is_ours_is_removed_however_the_file_system_calls_us(
    host_job: HostJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, squashed: bool
) -> None:
    """Root may have made the folder of the host; and of root, NFS makes nobody."""
    plays_owner(tmp_path / "bin", monkeypatch, "h1", uid, squashed=squashed)
    host_job.send([], ["run"])
    host_job.erase()
    assert not (tmp_path / "scratch").exists()


def test_the_directory_of_the_hosts_file_may_be_a_link(host_job: HostJob, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "disk")
    with hold_on([host_job], "lock", "down", 0.0):
        host_job.send([], ["run"])
        host_job.remove([str(host_job.work / "run")])
        assert [path.name for path in (tmp_path / "disk/h1/job").iterdir()] == ["lock"]
        host_job.erase()
    assert list((tmp_path / "disk").iterdir()) == []


def test_what_is_made_between_two_looks_is_left_alone(
    host_job: HostJob, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there when erase.sh looks for the last time, and a link a moment later."""
    before, scratch, tools = files_in(home), tmp_path / "scratch", tmp_path / "bin"
    for folder in (scratch, tools):
        folder.mkdir()
    shown = f'rm -f {scratch}/h1; {shutil.which("stat")} "$@"; code=$?; ln -s {home} {scratch}/h1; exit $code'
    (tools / "stat").write_text(
        f'#!/bin/sh\ncase $* in *%f:%u*/h1) {shown} ;; esac\nexec {shutil.which("stat")} "$@"\n'
    )
    (tools / "stat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    host_job.use_directories(str(scratch / "h1/job"), str(scratch / "h1/job"))
    (home / "job" / "job").mkdir()
    done = subprocess.run(
        SCRIPTS.argv("erase", f"{scratch}/h1/job", f"{scratch}/h1/job"), capture_output=True, check=False
    )
    assert (done.stderr, files_in(home)) == (b"", before)


@pytest.mark.parametrize("how", ["", "break", "stay"])
@pytest.mark.parametrize("place", ["scratch/h1", "scratch/h1/job"])
def test_no_lock_is_taken_through_a_link(host_job: HostJob, tmp_path: Path, home: Path, place: str, how: str) -> None:
    before = files_in(home)
    links(place)(tmp_path)

    def lock() -> None:
        with hold_on([host_job], "lock", "up", 0.0, break_it=how == "break", stay=how == "stay"):
            pass

    refused(lock)
    assert files_in(home) == before


@pytest.mark.parametrize("how", ["", "break", "stay"])
def test_a_lock_that_is_a_link_is_refused(host_job: HostJob, tmp_path: Path, home: Path, how: str) -> None:
    """It would replace any file of the user by the words of who holds it."""
    host_job.send([], ["run"])
    (tmp_path / "scratch/h1/job/lock").symlink_to(home / "thesis")
    with (
        pytest.raises(HostError, match=r"lock is a link$"),
        hold_on([host_job], "lock", "up", 0.0, break_it=how == "break", stay=how == "stay"),
    ):
        pass
    assert (home / "thesis").read_text() == "years of work"


def test_a_host_whose_work_directory_is_not_ours_is_not_locked(host_job: HostJob, tmp_path: Path, home: Path) -> None:
    """As where its home is on NFS, and the lock in /var/tmp."""
    links("scratch/h1/job")(tmp_path)
    lock = tmp_path / OWN / "lock"
    argv = SCRIPTS.argv("lock", str(lock), "{}", "", str(host_job.work))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(": ")[0], lock.exists()) == (1, "failed Permission denied", False)


def test_files_are_sent_through_no_link_and_no_secrets_removed(host_job: HostJob, tmp_path: Path, home: Path) -> None:
    before = files_in(home)
    links("scratch/h1/job")(tmp_path)
    refused(lambda: host_job.send([], ["run/new"]))
    assert (files_in(home), (home / "run/new").exists(), home.stat().st_mode & 0o777) == (before, False, 0o755)


def test_no_data_is_removed_through_a_link(tmp_path: Path, home: Path) -> None:
    before = files_in(home)
    links("scratch/h1/data")(tmp_path)
    argv = SCRIPTS.argv("remove_data", str(tmp_path / "scratch/h1/data"), "wiki/v1")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, "data is a link" in done.stderr, files_in(home)) == (1, True, before)


def test_the_folder_of_a_command_is_in_a_jobs_that_is_ours(host_job: HostJob, tmp_path: Path, home: Path) -> None:
    """`jobctl run` has one in that of the job, which may not have been there before."""
    links("scratch/h1")(tmp_path)
    place = str(tmp_path / "scratch/h1/job/.run-1a2b")
    host_job.use_directories(place, place)
    before = files_in(home)
    refused(lambda: host_job.send([], ["code"]))
    refused(host_job.erase)
    assert files_in(home) == before
