"""A job's place on this machine: which launchers are seen to live, what they are handed, and why one does not begin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import Control, Ledger, ledger_json
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store import machine
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import LockLost, break_lock
from jobctl.jobspec.deploy.store.processes import ARTEFACT_MARK, is_stopped, kill_marked, start_ticks
from jobctl.jobspec.deploy.targets.local import launchers as local_launchers
from jobctl.jobspec.deploy.targets.local.deployer import Local
from jobctl.jobspec.deploy.targets.local.job import LocalJob
from jobctl.jobspec.deploy.targets.local.launchers import LocalLaunchers
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.render.payload import control_json
from jobctl.jobspec.render.shell import local_hash
from tests.deploy.apply.test_executor import TWO
from tests.tools.waiting import promptly

_PLANNED = first_generation(TWO)
FIRST = replace(_PLANNED, members=tuple(replace(member, host="localhost") for member in _PLANNED.members))
START = Step("start", "node 0 on localhost", "", node=0, host="localhost")


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A job on this machine that has the files of its run, and a directory of node 0."""
    made = Local(JobDir(tmp_path / "jobs" / "job"), TWO)
    made.job.create()
    (made.work / "node-0").mkdir(parents=True)
    yield made
    kill_marked(made.work)


@pytest.fixture
def launcher() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts what stands for a launcher."""
    made: list[subprocess.Popen[bytes]] = []

    def start(**marks: str) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(["sleep", "600"], env={**os.environ, **marks}))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.wait()


def report(local: Local, node: int, process: subprocess.Popen[bytes] | None = None, **said: object) -> None:
    """Write the report of a node, as the launcher `process` does."""
    me = {"pid": process.pid, "start_ticks": start_ticks(process.pid)} if process else {}
    path = local.work / f"node-{node}" / "report.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"launcher": me, "state": "running", "generation": 1, **said}))


def hand_over(local: Local, control: Control) -> None:
    assert control.generation is not None
    host_job = LocalJob(local.work, lambda: TWO)
    host_job.hand_over(ledger_json(control.ledger), control_json(control.generation))


def test_a_launcher_is_seen_by_its_report_and_its_process(
    local: Local, launcher: Callable[..., subprocess.Popen[bytes]]
) -> None:
    hand_over(local, Control(FIRST, Ledger(1.0)))
    lives, ended = launcher(**{ARTEFACT_MARK: "abc"}), launcher()
    report(local, 0, lives)
    report(local, 1, ended)
    ended.kill()
    ended.wait()
    found = local.observe().nodes
    assert [(n.node, n.role, n.host, n.launcher, n.state, n.artefact, n.container) for n in found] == [
        (0, "trainer", "localhost", lives.pid, "running", ArtefactId("abc"), None),
        (1, "trainer", "localhost", None, "failed", None, None),
    ]


def test_a_launcher_that_somebody_has_stopped_is_seen_so(
    local: Local, launcher: Callable[..., subprocess.Popen[bytes]]
) -> None:
    hand_over(local, Control(FIRST, Ledger(1.0)))
    goes_on, stopped = launcher(), launcher()
    report(local, 0, goes_on)
    report(local, 1, stopped)
    stopped.send_signal(signal.SIGSTOP)
    promptly(lambda: is_stopped(stopped.pid))
    assert [(node.node, node.state, node.paused) for node in local.observe().nodes] == [
        (0, "running", False),
        (1, "running", True),
    ]


def test_a_node_without_a_launcher_has_the_role_that_its_generation_says(local: Local) -> None:
    members = tuple(replace(member, roles=("server",)) for member in FIRST.members)
    hand_over(local, Control(replace(FIRST, members=members), Ledger(1.0)))
    assert [(node.node, node.role, node.state) for node in local.observe().nodes] == [
        (0, "server", "pending"),
        (1, "server", "pending"),
    ]


def test_the_newest_generation_may_be_one_that_launchers_have_begun(local: Local) -> None:
    hand_over(local, Control(FIRST, Ledger(1.0)))
    later = replace(FIRST, number=2)
    report(local, 0, order=json.loads(control_json(later)))
    assert (local.newest().generation, local.observe().control.generation) == (later, later)


def test_a_generation_and_its_ledger_are_handed_to_launchers_and_kept_nowhere_else(local: Local) -> None:
    local.observe()
    with local.lock("up"):
        assert dict(local.begin(FIRST, Ledger(1.0, "code"))) == {}
    assert local.newest() == Control(FIRST, Ledger(1.0, "code"))
    assert local.job.kept_run() == (None, None, None)
    modes = [(local.work / "run" / name).stat().st_mode & 0o777 for name in ("control.json", "ledger.json")]
    assert modes == [0o644, 0o600]


def test_what_cannot_be_read_is_told_as_it_is(local: Local) -> None:
    (local.work / "run").mkdir()
    (local.work / "run" / "control.json").write_text('{"version": 99}')
    for look in (local.observe, local.newest):
        with pytest.raises(DeployError, match=r"cannot read .*control\.json") as told:
            look()
        assert "jobctl down" in (told.value.hint or "")


def test_a_launcher_that_ends_at_once_is_an_error_with_its_last_words(local: Local) -> None:
    (local.work / "node-0.sh").write_text("echo no such thing; exit 3\n")
    local.observe()
    with local.lock("up"), pytest.raises(DeployError, match="the launcher of node 0 ended with code 3") as told:
        local.apply([START])
    assert told.value.hint == f"{local.work}/node-0/launcher.log ends with:\nno such thing"


def test_a_node_that_starts_is_announced_and_marked(local: Local) -> None:
    report(local, 0, failure={"kind": "process"})
    says = '{"state": "waiting", "launcher": {"pid": %s, "start_ticks": %s}}'
    script = f"""\
cp node-0/report.json announced.json
printf '{says}' $$ $(cut -d ' ' -f 22 /proc/$$/stat) > node-0/new.json
mv node-0/new.json node-0/report.json
sleep 600
:
"""  # without `exec`, in the middle of which the kernel shows no environment
    (local.work / "node-0.sh").write_text(f"cd '{local.work}'\n{script}")
    local.observe()
    with local.lock("up"):
        assert dict(local.apply([START])) == {}
        announced = json.loads((local.work / "announced.json").read_text())
        assert (announced["state"], announced["failure"]) == ("launching", None)
        node = local.observe().node(0)
        assert node is not None
        assert (node.state, node.alive, node.artefact) == (
            "pending",
            True,
            ArtefactId(local_hash((local.work / "node-0.sh").read_bytes(), TWO)),
        )
        local.plan = replace(TWO, nodes=TWO.nodes[1:])  # else its files would be kept: it only moves
        assert dict(local.apply([replace(START, kind="remove", grace=0.0)])) == {}
    assert (local.observe().nodes, sorted(path.name for path in local.work.glob("node-0*"))) == ((), [])


def test_a_launcher_that_is_killed_as_it_starts_is_started_again(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as three times; one that ends by itself is not."""
    begun: list[subprocess.Popen[bytes]] = []

    def spawn(*_: object) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen(["sleep", "600"]))
        return begun[-1]

    monkeypatch.setattr(local_launchers, "spawn", spawn)
    monkeypatch.setattr(local_launchers, "local_hash", lambda *_: "abc")
    monkeypatch.setattr(local_launchers, "recorded_environ", lambda _: {})
    (local.work / "node-0" / "start.sh").touch()
    monkeypatch.setattr(local_launchers, "script_of", lambda work, node: work / f"node-{node}" / "start.sh")
    launchers = LocalLaunchers(local.work)
    launchers.start(0, TWO)
    for number in range(1, 4):
        begun[-1].kill()
        begun[-1].wait()
        launchers.check(0)
        assert len(begun) == number + 1
    begun[-1].kill()
    begun[-1].wait()
    with pytest.raises(DeployError, match="the launcher of node 0 ended with code -9"):
        launchers.check(0)


def test_who_has_lost_the_lock_leaves_secrets_as_they_are(local: Local) -> None:
    """Another command has brought its own."""
    local.leave_secrets({"TOKEN": "s3cr3t"})
    with local.lock("up"):
        break_lock(local.job.lock)
        with pytest.raises(LockLost, match="on this machine"):
            local.leave_secrets({})
    kept = local.started_with()
    assert kept is not None
    assert kept.secrets == {"TOKEN": "s3cr3t"}


def test_what_launchers_have_made_elsewhere_goes_with_the_job_although_they_were_killed(
    local: Local, tmp_path: Path
) -> None:
    """The folder that nodes share, among checkpoints, and the one in memory that a link leads to."""
    checkpoints, memory = tmp_path / "checkpoints", tmp_path / "jobctl-abc"
    shared, others = checkpoints / f".jobctl-{FIRST.job}.1-2", checkpoints / ".jobctl-another.1-2"
    for folder in (shared, others, memory):
        folder.mkdir(parents=True)
    (checkpoints / "step-7").touch()
    (local.work / "node-0" / "scratch").symlink_to(memory)
    hand_over(local, Control(replace(FIRST, checkpoint_dir=str(checkpoints)), Ledger(1.0)))
    LocalJob(local.work, lambda: TWO).erase(tmp_path / "logs")
    assert sorted(path.name for path in checkpoints.iterdir()) == [others.name, "step-7"]
    assert not memory.exists()
    assert not local.work.exists()


def test_which_boot_this_is_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.this_machine()
    monkeypatch.setattr(machine, "_BOOT", tmp_path / "none")
    assert (here["boot"] != "", machine.this_machine()) == (True, here)
