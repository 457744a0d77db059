"""A job's place on a host, which this machine plays: files arrive, are seen, are collected, and go. No engine takes part."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.collecting import collect
from jobctl.jobspec.deploy.host.containers import _seen
from jobctl.jobspec.deploy.host.host_job import HostJob, is_full
from jobctl.jobspec.deploy.host.webhooks import leave_webhooks
from jobctl.jobspec.deploy.model.control import Ledger, ledger_json
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.launcher.report.node_report import DECLARED_DEAD
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.render.artefact import Artefact
from jobctl.jobspec.render.payload import control_json
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO
from tests.tools.foreign import plays_owner

GENERATION = first_generation(TWO)
FILES = [Artefact("launcher.py", b"launcher", 0o755), Artefact("node-0.sh", b"start", 0o755)]


@pytest.fixture
def host_job(tmp_path: Path) -> HostJob:
    return HostJob(Host("h1", dir=str(tmp_path / "dir")), LocalTransport("h1"), "job", "ssh")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def sent(host_job: HostJob) -> Path:
    """Send the files of a job; return its work directory."""
    host_job.send(FILES, ["run", "node-0"])
    return Path(host_job.work)


def test_files_are_sent_with_their_modes(host_job: HostJob, tmp_path: Path) -> None:
    work = sent(host_job)
    assert work == tmp_path / "dir" / "h1" / "job"
    assert {path.name: mode(path) for path in work.iterdir() if path.is_file()} == {
        "launcher.py": 0o755,
        "node-0.sh": 0o755,
    }
    assert sorted(path.name for path in work.iterdir() if path.is_dir()) == ["node-0", "run"]
    assert mode(tmp_path / "dir") == 0o700


def test_secrets_are_readable_by_their_owner_only_and_go_when_there_are_none(host_job: HostJob) -> None:
    work = sent(host_job)
    assert host_job.secrets() is None
    host_job.send_secrets({"TOKEN": "s3cr3t"})
    assert (mode(work / "secrets"), mode(work / "secrets" / "secrets.json")) == (0o700, 0o600)
    assert host_job.secrets() == {"TOKEN": "s3cr3t"}
    host_job.send(FILES, [], secrets=True)
    assert host_job.secrets() == {"TOKEN": "s3cr3t"}
    host_job.leave_secrets({"OTHER": "x"})
    assert host_job.secrets() == {"OTHER": "x"}
    host_job.send(FILES, [])
    assert host_job.secrets() is None
    assert not (work / "secrets").exists()


def test_webhooks_of_launchers_are_kept_as_secrets_are(host_job: HostJob) -> None:
    work = sent(host_job)
    webhooks = {"version": 1, "webhooks": [{"key": "webhook HOOK (json)", "url": "https://x/very-secret"}]}
    leave_webhooks(host_job, webhooks)
    path = work / "secrets" / "notify.json"
    assert (mode(work / "secrets"), mode(path), json.loads(path.read_text())) == (0o700, 0o600, webhooks)
    host_job.send(FILES, [], secrets=True)
    assert path.exists()
    leave_webhooks(host_job, None)
    assert not path.exists()
    leave_webhooks(host_job, None)
    leave_webhooks(host_job, webhooks)
    host_job.send(FILES, [])
    assert not (work / "secrets").exists()


@pytest.mark.parametrize("tool", ["rm", "mv"])
def test_what_somebody_else_removes_at_the_same_time_is_removed(
    host_job: HostJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """`down` ends the command of a `run`, and both remove what that needed."""
    work, quicker = sent(host_job), tmp_path / "bin" / tool
    quicker.parent.mkdir()
    gone = {
        "rm": 'if [ "$1" = -rf ] && [ ! -e "$0.2" ]; then /bin/rm -rf -- "$3"; : > "$0.2"; exit 1; fi',
        "mv": f"/bin/rm -rf {work}",
    }
    quicker.write_text(f'#!/bin/sh\n{gone[tool]}\nexec /bin/{tool} "$@"\n')
    quicker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{quicker.parent}:/usr/bin:/bin")
    host_job.erase()
    assert not work.parent.exists()


def test_a_generation_is_handed_over_and_seen(host_job: HostJob) -> None:
    work, ledger = sent(host_job), Ledger(1.0, "code")
    host_job.hand_over(ledger_json(ledger), control_json(GENERATION))
    assert host_job.control().generation == GENERATION
    assert host_job.control().ledger == ledger
    assert (mode(work / "run" / "ledger.json"), mode(work / "run" / "control.json")) == (0o600, 0o644)
    later = Ledger(2.0, "code")
    host_job.hand_over(ledger_json(later), b"")
    assert (host_job.control().generation, host_job.control().ledger) == (GENERATION, later)


def test_what_is_there_is_seen_in_one_look(host_job: HostJob) -> None:
    assert not host_job.observe(()).there
    work = sent(host_job)
    (work / "node-0" / "report.json").write_text('{"state": "running", "generation": 1}')
    (work / "node-1").mkdir()
    (work / "node-1" / "report.json").write_text('{"state": "run')  # it is being written
    host_job.note_prepared("version")
    seen = host_job.observe(())
    assert (seen.there, seen.supervised, seen.prepared, seen.unreadable) == (True, False, "version", None)
    assert (seen.reports, seen.directories) == ({0: {"state": "running", "generation": 1}}, frozenset({0, 1}))
    (work / "run" / "control.json").write_text('{"version": 99}')
    unreadable = host_job.observe(()).unreadable
    assert unreadable is not None
    assert unreadable.code == "unreadable"


def test_a_launcher_that_is_on_its_way_is_told_from_the_dead_one(host_job: HostJob) -> None:
    work = sent(host_job)
    report = work / "node-0" / "report.json"
    host_job.announce(0, None)
    assert not report.exists()
    failed = {"state": "failed", "generation": 3, "failure": {"kind": "exit"}, "reason": "it failed"}
    dead = {"pid": 1, "start_ticks": 2}
    host_job.announce(0, {**failed, "launcher": dead})
    announced = json.loads(report.read_text())
    assert announced == {
        "state": "launching",
        "generation": 3,
        "failure": None,
        "reason": None,
        "launcher": {},
        "replaces": dead,
    }
    host_job.announce(0, announced)  # the launcher that was to replace it has not begun
    assert json.loads(report.read_text()) == announced
    assert json.loads((report.parent / DECLARED_DEAD).read_text()) == dead


@pytest.mark.parametrize(("whose", "fine"), [("h1", False), ("job", False), ("dir", True)])
def test_nothing_is_sent_into_a_folder_of_somebody_else(
    host_job: HostJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str, fine: bool
) -> None:
    """In /scratch anybody can make it before, and put other scripts in the place of ours. `dir=` itself is the user's choice."""
    plays_owner(tmp_path / "bin", monkeypatch, whose)
    if fine:
        assert sent(host_job).is_dir()
        return
    with pytest.raises(HostError, match="belongs to somebody else") as caught:
        sent(host_job)
    assert (caught.value.code, caught.value.hint) == (
        "no-permission",
        "choose a directory of your own with `dir=` in the hosts file",
    )
    assert not list(tmp_path.rglob("node-0.sh"))


def test_only_the_user_lists_what_is_sent(host_job: HostJob) -> None:
    """The daemon that starts containers passes: on NFS it may be nobody there."""
    work = sent(host_job)
    assert [path.stat().st_mode & 0o777 for path in (work, work.parent)] == [0o711, 0o711]


def test_a_report_is_written_through_no_link_of_a_container(
    host_job: HostJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in the container sees a file that is made in the node's folder, and puts a link in its place."""
    node, mine = sent(host_job) / "node-0", tmp_path / "mine"
    mine.write_text("mine")
    mine.chmod(0o600)
    (tmp_path / "bin").mkdir()
    swift = (
        f'#!/bin/sh\nfor new in {node}/.jobctl.*; do ln -sf {mine} $new; done 2>&-\nexec {shutil.which("chmod")} "$@"'
    )
    (tmp_path / "bin" / "chmod").write_text(swift)
    (tmp_path / "bin" / "chmod").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    host_job.announce(0, {"state": "failed", "launcher": {"pid": 1, "start_ticks": 2}})
    assert (mine.read_text(), mode(mine), mode(node / "report.json")) == ("mine", 0o600, 0o644)


def test_logs_and_outputs_are_collected(host_job: HostJob, tmp_path: Path) -> None:
    assert collect(host_job, tmp_path / "none") == 0
    work = sent(host_job)
    for name in ("node-0/logs/1/workerlog.0", "node-0/processes/1/0.json", "outputs/runs/a", "node-0/progress/0"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    into = tmp_path / "into"
    assert collect(host_job, into) == 3
    assert sorted(str(path.relative_to(into)) for path in into.rglob("*") if path.is_file()) == [
        "node-0/logs/1/workerlog.0",
        "node-0/processes/1/0.json",
        "outputs/h1/runs/a",
    ]


def test_what_is_erased_leaves_nothing_and_what_is_forgotten_one_node_less(host_job: HostJob, tmp_path: Path) -> None:
    work = sent(host_job)
    (work / "node-1").mkdir()
    host_job.forget(0)
    assert sorted(path.name for path in work.iterdir()) == ["launcher.py", "node-1", "run"]
    host_job.erase()
    assert not (tmp_path / "dir").exists()


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("room 90000 0 0 100 50", True),
        ("room 90000 5 0 100 50", True),
        ("room 90000 5000 0 100 50\nroom of root", False),
        ("room 90333 2048 0 25584 25527\nroom of root", True),  # ext4 keeps 2 % for itself, and root cannot write there
        ("room 9000000 4096 0 100 50\nroom of root", True),  # or 4096 blocks
        ("room 9000000 4096 4096 100 50\nroom of root", False),
        ("room 90000 5 5 100 0", True),
        ("room 90000 5 5 0 0", False),  # such a file system counts no inodes
        ("stat: not found", False),
    ],
)
def test_a_disk_is_full_without_blocks_or_inodes(said: str, full: bool) -> None:
    assert is_full(said) == full


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"docker: 'compose' is not a docker command.\nSee 'docker --help'", "compose-missing"),
        (b"Error response from daemon: No such image: a:1", "image-missing"),
        (b"Error response from daemon: could not select device driver", "no-gpu-runtime"),
        (b"write /var/lib/docker: no space left on device", "disk-full"),
        (b"Cannot connect to the Docker daemon at unix:///d.sock. Is the docker daemon running?", "docker-down"),
        (b"failed to connect to the docker API at unix:///d.sock; check if the path is correct", "docker-down"),
        (b'error during connect: Post "http://d.sock/v1.45/containers/create": EOF', "docker-down"),
        (b"something else", "cannot-start"),
    ],
)
def test_what_keeps_a_container_from_starting_has_a_code(host_job: HostJob, said: bytes, code: str) -> None:
    error = host_job.starter.error("start node 0", Result(1, b"", said))
    assert isinstance(error, HostError)
    assert (error.code, error.message.startswith("h1: cannot start node 0: ")) == (code, True)


LABELS = {"jobctl.node": "1", "jobctl.role": "trainer", "jobctl.spec": "hash", "jobctl.owner": "ml@a"}


@pytest.mark.parametrize(
    ("state", "runs"), [("running", True), ("restarting", True), ("paused", True), ("exited", False)]
)
def test_a_container_that_its_engine_restarts_counts_as_one_that_runs(state: str, runs: bool) -> None:
    seen = _seen({"Id": "c", "State": state, "Labels": LABELS})
    assert (seen.node, seen.running, seen.artefact, seen.owner, seen.service) == (
        1,
        runs,
        ArtefactId("hash"),
        "ml@a",
        None,
    )
    assert seen.restarting is (state == "restarting")


def test_a_service_is_no_node() -> None:
    seen = _seen({"Id": "c", "State": "running", "Labels": {**LABELS, "jobctl.node": "etcd-0"}})
    assert (seen.node, seen.service) == (-1, "etcd-0")
    assert _seen({"Id": "c", "Labels": {**LABELS, "jobctl.node": "../etc"}}).service is None


@pytest.mark.parametrize(
    ("command", "python"),
    [
        ("/opt/conda/bin/python /jobctl/launcher.py --control /jobctl/run/control.json", "/opt/conda/bin/python"),
        ("etcd --name etcd-0", "python3"),
        (None, "python3"),
    ],
)
def test_a_container_tells_what_python_is_called_in_its_image(command: str | None, python: str) -> None:
    seen = _seen({"Id": "c", "Labels": LABELS, "Image": "app:1", "Command": command})
    assert seen.interpreter == ("app:1", python)
