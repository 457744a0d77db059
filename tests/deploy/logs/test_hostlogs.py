"""Logs on hosts, which this machine plays: which there are, and parts of them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from jobctl.jobspec.deploy.host import logs as hostlogs
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.logs import HostLogs
from jobctl.jobspec.deploy.logs.files import LogKey, Want
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host

LOG = PurePosixPath("node-0/logs/1/workerlog.0")


class Silent(LocalTransport):
    """A host that does not answer."""

    asked = 0

    def run(self, *_: object, **how: object) -> Result:
        self.asked += 1
        raise HostError(self.host, "silent", "no answer")


def host_job(folder: Path, name: str) -> HostJob:
    made = HostJob(Host(name, dir=str(folder)), LocalTransport(name), "job", "ssh")
    made.use_directories(str(folder / name), str(folder / name))
    return made


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_of_nodes_are_found_on_all_hosts(tmp_path: Path) -> None:
    write(tmp_path / "h0", str(LOG), "text\n")
    write(tmp_path / "h0", "node-0/processes/1/0.json", "{}")
    write(tmp_path / "h0", "node-0/progress/0", "7")
    write(tmp_path / "h0", "run/control.json", "{}")
    write(tmp_path / "h1", "node-1/logs/a name", "abc")
    found = HostLogs([host_job(tmp_path, "h0"), host_job(tmp_path, "h1")]).files()
    assert {(key.host, str(key.path)): size.bytes for key, size in found.items()} == {
        ("h0", str(LOG)): 5,
        ("h0", "node-0/processes/1/0.json"): 2,
        ("h1", "node-1/logs/a name"): 3,
    }


def test_parts_of_files_are_read_and_one_that_is_gone_disturbs_no_other(tmp_path: Path) -> None:
    write(tmp_path / "h0", str(LOG), "0123456789")
    write(tmp_path / "h0", "node-0/logs/1/workerlog.1", "abcdef")
    logs = HostLogs([host_job(tmp_path, "h0")])
    first, last = Want(LogKey("h0", LOG), 2, 3), Want(LogKey("h0", LOG), 9, 1)
    gone = Want(LogKey("h0", PurePosixPath("node-0/logs/1/workerlog.9")), 0, 4)
    other = Want(LogKey("h0", PurePosixPath("node-0/logs/1/workerlog.1")), 0, 6)
    found = logs.read([first, gone, other, last])
    assert (found[first], found[other], found[last]) == (b"234", b"abcdef", b"9")


def test_a_host_that_falls_silent_hides_no_other_and_is_not_asked_at_once(tmp_path: Path) -> None:
    write(tmp_path / "h0", str(LOG), "text\n")
    silent = HostJob(Host("h1"), Silent("h1"), "job", "ssh")
    silent.use_directories("/w", "/w")
    logs = HostLogs([host_job(tmp_path, "h0"), silent])
    assert hostlogs.RETRY_AFTER > 0
    assert [key.host for key in logs.files()] == ["h0"]
    assert list(logs.problems) == ["h1"]
    assert [key.host for key in logs.files()] == ["h0"]
    assert isinstance(silent.transport, Silent)
    assert silent.transport.asked == 1
