"""Logs on hosts, which this machine plays: which there are, and parts of them."""

from __future__ import annotations

import threading
import time
from pathlib import Path, PurePosixPath

import pytest

from jobctl.jobspec.deploy.host import logs as hostlogs
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.logs import HostLogs
from jobctl.jobspec.deploy.logs.files import LogKey, Want
from jobctl.jobspec.deploy.logs.reader import Logs
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.log_lines import LineSelection
from jobctl.jobspec.deploy.transport import live_fanout
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host
from tests.tools.waiting import PATIENCE, PROMPT

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


def logs_of(*homes: HostJob) -> HostLogs:
    return HostLogs(lambda: homes)


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
    found = logs_of(host_job(tmp_path, "h0"), host_job(tmp_path, "h1")).files()
    assert {(key.host, str(key.path)): size.bytes for key, size in found.items()} == {
        ("h0", str(LOG)): 5,
        ("h0", "node-0/processes/1/0.json"): 2,
        ("h1", "node-1/logs/a name"): 3,
    }


def test_parts_of_files_are_read_and_one_that_is_gone_disturbs_no_other(tmp_path: Path) -> None:
    write(tmp_path / "h0", str(LOG), "0123456789")
    write(tmp_path / "h0", "node-0/logs/1/workerlog.1", "abcdef")
    logs = logs_of(host_job(tmp_path, "h0"))
    logs.files()
    first, last = Want(LogKey("h0", LOG), 2, 3), Want(LogKey("h0", LOG), 9, 1)
    gone = Want(LogKey("h0", PurePosixPath("node-0/logs/1/workerlog.9")), 0, 4)
    other = Want(LogKey("h0", PurePosixPath("node-0/logs/1/workerlog.1")), 0, 6)
    shorter = Want(LogKey("h0", LOG), 8, 4)
    found = logs.read([first, gone, shorter, other, last])
    assert (found[first], found[other], found[last]) == (b"234", b"abcdef", b"9")
    assert found[shorter] == b"89\0\0"


def test_a_host_that_falls_silent_hides_no_other_and_is_not_asked_at_once(tmp_path: Path) -> None:
    write(tmp_path / "h0", str(LOG), "text\n")
    silent = HostJob(Host("h1"), Silent("h1"), "job", "ssh")
    silent.use_directories("/w", "/w")
    logs = logs_of(host_job(tmp_path, "h0"), silent)
    assert hostlogs.RETRY_AFTER > 0
    assert [key.host for key in logs.files()] == ["h0"]
    assert list(logs.problems) == ["h1"]
    assert [key.host for key in logs.files()] == ["h0"]
    assert isinstance(silent.transport, Silent)
    assert silent.transport.asked == 1


def test_a_host_that_gets_a_node_later_is_read_and_one_that_loses_it_read_on(tmp_path: Path) -> None:
    homes = {name: host_job(tmp_path, name) for name in ("h0", "h1")}
    for name, node in (("h0", 0), ("h1", 1)):
        write(tmp_path / name, f"node-{node}/logs/1/workerlog.0", "text\n")
    now = ["h0"]
    logs = HostLogs(lambda: [homes[name] for name in now])
    assert [key.host for key in logs.files()] == ["h0"]
    now[:] = ["h1"]
    assert [key.host for key in logs.files()] == ["h0", "h1"]


def test_nobody_who_follows_waits_for_a_host_that_takes_long_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_fanout, "FIRST_ANSWER_TIMEOUT", PATIENCE)
    monkeypatch.setattr(live_fanout, "SILENCE_TIMEOUT", 0.1)
    write(tmp_path / "h0", str(LOG), "text\n")
    over, asked = threading.Event(), threading.Event()

    class Dead(LocalTransport):
        def run(self, *_: object, **how: object) -> Result:
            asked.set()
            over.wait(PROMPT)
            raise HostError(self.host, "no-route", "no answer")

    dead = HostJob(Host("h1"), Dead("h1"), "job", "ssh")
    dead.use_directories("/w", "/w")
    logs = logs_of(host_job(tmp_path, "h0"), dead)
    try:
        assert [key.host for key in logs.files(live=True)] == ["h0"]
        monkeypatch.setattr(live_fanout, "SILENCE_TIMEOUT", PROMPT)
        begun = time.monotonic()
        assert [key.host for key in logs.files(live=True)] == ["h0"]
        assert time.monotonic() - begun < PROMPT / 2
        assert asked.is_set()
        assert [(host, error.message[:23]) for host, error in logs.problems.items()] == [
            ("h1", "h1: it does not answer;")
        ]
    finally:
        over.set()


def test_of_logs_that_begin_after_the_last_lines_were_shown_all_lines_are(tmp_path: Path) -> None:
    """Also on a host that had no node before, of its setup too; not on one that only answers later."""
    now = [host_job(tmp_path, "h0")]
    logs = Logs(HostLogs(lambda: now), LineSelection(), last=1)

    def shown(*paths: str) -> dict[str, list[str]]:
        """Have hosts write logs, and return what is shown of each."""
        for path in paths:
            write(tmp_path, path, "1\n2\n3\n")
        found: dict[str, list[str]] = {}
        for line in logs.lines():
            found.setdefault(f"{line.node} {line.log}", []).append(line.text.decode())
        return found

    every = ["1", "2", "3"]
    assert shown("h0/node-0/logs/setup.log", "h0/node-0/logs/2/old.log") == {"0 old.log": ["3"]}
    assert shown("h0/node-0/logs/2/new.log") == {"0 new.log": every}
    now.append(host_job(tmp_path, "h1"))
    assert shown("h1/node-1/logs/setup.log", "h1/node-1/logs/2/old.log") == {"1 old.log": ["3"]}
    now.append(host_job(tmp_path, "h2"))
    assert shown("h2/node-2/logs/setup.log", "h2/node-2/logs/3/new.log") == {"2 setup.log": every, "2 new.log": every}
    assert shown("h1/node-1/logs/2/new.log") == {"1 new.log": every}
