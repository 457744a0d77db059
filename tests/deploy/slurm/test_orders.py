"""Whether the allocation of a job has followed an order, as `up`, `restart` and `scale` wait for it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.slurm.allocation import ORDER_TIMEOUT, SlurmAllocation
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.queue import QueueEntry, SlurmLook
from jobctl.jobspec.deploy.slurm.sent_files import hashes_of
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.render.slurm import slurm_files
from jobctl.jobspec.spec.hosts import Host
from tests.render.plans import SLURM, planned
from tests.tools.foreign import plays_owner


class OrderedAllocation(SlurmAllocation):
    """A job that runs, whose coordinator notes orders or hears none."""

    def __init__(self, directory: Path, state: str, *, notes: bool) -> None:
        super().__init__(JobDir(directory / "jobs" / "tiny"), Inventory((Host("localhost"),)), str(directory))
        self.state, self.notes, self.left, self.said = state, notes, "", dict[str, object]()
        told: Any = SimpleNamespace(look=self.answer, order=self.take, name="login")
        self.login = told

    def take(self, job_id: str, identity: str, command: str, **more: object) -> None:
        self.left, self.said = identity, more

    def answer(self, *, ask: bool) -> SlurmLook:
        start = {"began": 1.0, "followed": self.left if self.notes else "restart-0"}
        allocation = {"state": self.state, "job_id": "7"}
        files = {PurePosixPath("run/allocation.json"): allocation, PurePosixPath("run/start.json"): start}
        return SlurmLook("7", 101.0, QueueEntry("7", "RUNNING"), asked=True, files=files, there=True, age=1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("jobctl.jobspec.deploy.slurm.allocation.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "jobctl.jobspec.deploy.slurm.allocation.pause", lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    return now


def test_a_job_that_starts_has_followed_an_order_once_it_is_noted(tmp_path: Path, clock: list[float]) -> None:
    OrderedAllocation(tmp_path, "starting", notes=True).order("7", "restart", fresh=True)
    assert clock == [1000.0]


def test_an_order_is_followed_though_the_login_node_was_silent_for_a_moment(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To be told that nothing was changed, a person would give it again."""
    allocation = OrderedAllocation(tmp_path, "starting", notes=True)
    answers = iter([HostError("login", "unreachable", "no route to host")])

    def look(*, ask: bool) -> SlurmLook:
        for silent in answers:
            raise silent
        return allocation.answer(ask=ask)

    monkeypatch.setattr(allocation.login, "look", look)
    allocation.order("7", "restart")
    assert clock[0] > 1000.0


@pytest.mark.parametrize(("state", "notes"), [("starting", False), ("running", False), ("running", True)])
def test_an_order_that_begins_no_generation_is_an_error(
    state: str, notes: bool, tmp_path: Path, clock: list[float]
) -> None:
    with pytest.raises(HostError, match=f"has not begun the next generation within {ORDER_TIMEOUT:g} s") as caught:
        OrderedAllocation(tmp_path, state, notes=notes).order("7", "restart", fresh=True)
    assert (caught.value.code, clock[0] >= 1000.0 + ORDER_TIMEOUT) == ("slurm-order", True)


@pytest.fixture
def scancel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes `scancel` fail with some words, and return a job's place on this machine."""
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def fails(words: str) -> LoginNode:
        (tmp_path / "scancel").write_text(
            f"#!/bin/sh\necho 'scancel: error: Kill job error on job id 7: {words}' >&2\nexit 1\n"
        )
        (tmp_path / "scancel").chmod(0o755)
        return LoginNode(Inventory((Host("localhost"),)), "tiny", str(tmp_path))

    return fails


@pytest.mark.parametrize("words", ["Invalid job id specified", "Job/step already completing or completed"])
def test_a_job_that_has_just_ended_needs_neither_an_order_nor_to_be_cancelled(
    scancel: Any, tmp_path: Path, words: str
) -> None:
    login = scancel(words)
    with pytest.raises(HostError, match="job 7 of Slurm has ended meanwhile") as caught:
        login.order("7", "stop-1", "stop")
    assert (caught.value.code, (tmp_path / "run/order.json").exists()) == ("slurm-ended", False)
    login.cancel("7")


def test_that_slurm_refuses_an_order_is_another_error(scancel: Any) -> None:
    login = scancel("Access/permission denied")
    for refused in (lambda: login.order("7", "stop-1", "stop"), lambda: login.cancel("7")):
        with pytest.raises(HostError, match="Access/permission denied") as caught:
            refused()
        assert caught.value.code != "slurm-ended"


@pytest.mark.parametrize(("code", "is_error"), [("slurm-ended", False), ("slurm-refused", True)])
def test_a_job_that_ends_while_it_is_taken_down_is_down(tmp_path: Path, code: str, is_error: bool) -> None:
    allocation = OrderedAllocation(tmp_path, "running", notes=True)

    def order(job_id: str, identity: str, command: str, **more: object) -> None:
        told.look = lambda ask: SlurmLook("7", 101.0, None, asked=True, there=True)  # nothing of it is in the queue
        raise HostError("login", code, "it has ended")

    told: Any = allocation.login
    told.order = order
    told.end_batch = lambda job_id: told.order(job_id, "", "")
    with pytest.raises(HostError, match="it has ended") if is_error else contextlib.nullcontext():
        allocation.cancel(30.0)


@pytest.mark.parametrize("known", [True, False])
def test_processes_get_the_time_that_a_user_asks_for(tmp_path: Path, clock: list[float], known: bool) -> None:
    """Of a job that is only known by its spec nobody has asked for the time that jobctl would wait."""
    allocation = OrderedAllocation(tmp_path, "running", notes=True)
    allocation.plan = planned(dict(SLURM)["slurm"], "slurm") if known else None
    told: Any = allocation.login
    gone = SlurmLook("7", 101.0, None, asked=True, there=True)
    told.look = lambda ask: gone if allocation.left else allocation.answer(ask=ask)
    allocation.cancel(600.0)
    assert allocation.said == ({"grace": 600.0} if known else {})


def test_a_job_whose_storage_has_no_room_for_an_order_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes get their grace all the same."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "order.new").symlink_to("/dev/full")
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    allocation, there = OrderedAllocation(tmp_path, "running", notes=True), tmp_path / "told"
    login = LoginNode(Inventory((Host("localhost"),)), "tiny", str(tmp_path))
    told: Any = allocation.login
    told.order, told.end_batch = login.order, login.end_batch
    gone = SlurmLook("7", 101.0, None, asked=True, there=True)
    told.look = lambda ask: gone if there.exists() else allocation.answer(ask=ask)
    allocation.cancel(30.0)
    assert there.read_text() == "--batch --signal=TERM 7\n"


# What plays the coordinator: it is signalled before it listens, and then as it listens.
_PROGRAM = """\
import os, signal, subprocess, sys
heard = []
signals = (signal.SIGUSR1, signal.SIGUSR2)
for number in signals: os.kill(os.getpid(), number)
for number in signals: signal.signal(number, lambda received, frame: heard.append(received))
for number in signals: os.kill(os.getpid(), number)
child = "import signal; print([signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGUSR1, signal.SIGUSR2)])"
told = subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
print(sorted(heard), told)
"""


def test_a_signal_before_the_coordinator_listens_does_not_end_the_batch_script(tmp_path: Path) -> None:
    plan = planned(dict(SLURM)["slurm"], "slurm")
    batch = {file.path: file.content for file in slurm_files(plan, first_generation(plan))}["job.sbatch"].decode()
    (tmp_path / "program.py").write_text(_PROGRAM)
    before, _, _ = batch.partition("\nexec ")
    script = before.replace(f"work={plan.slurm.work}", f"work={tmp_path}") if plan.slurm else ""
    (tmp_path / "job.sh").write_text(f"{script}\nexec {sys.executable} {tmp_path}/program.py\n")
    done = subprocess.run(["sh", tmp_path / "job.sh"], stdout=subprocess.PIPE, check=False, env=dict(os.environ))
    heard = [int(signal.SIGUSR1), int(signal.SIGUSR2)]
    assert (done.returncode, done.stdout.decode().split("\n")[0]) == (0, f"{heard} [True, True]")


def test_a_batch_script_of_an_earlier_version_is_no_change() -> None:
    """It differs in how it takes signals: that alone submits no job again."""
    plan = planned(dict(SLURM)["slurm"], "slurm")
    batch = {file.path: file.content for file in slurm_files(plan, first_generation(plan))}["job.sbatch"]
    earlier = re.sub(rb"(?m)^trap .*\n", b"", batch)
    assert (len(earlier) < len(batch), hashes_of(plan)["job.sbatch"]) == (True, sha256(earlier).hexdigest())


def test_what_belongs_to_somebody_else_is_left_alone_and_another_directory_of_the_spec_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a `.jobctl` that a colleague has made for all: its owner could put other programs in the place of ours."""
    work = tmp_path / ".jobctl" / "tiny"
    plays_owner(tmp_path / "bin", monkeypatch, ".jobctl")
    refused(LoginNode(Inventory((Host("localhost"),)), "tiny", str(work)), "belongs to somebody else")


def test_nothing_is_changed_or_removed_through_a_link_of_somebody_else(tmp_path: Path) -> None:
    """It leads from `.jobctl` to a folder of the user, where something is called as the job is."""
    projects = tmp_path / "projects"
    (projects / "tiny" / "run").mkdir(parents=True)
    (projects / "tiny" / "thesis").write_text("years of work")
    (tmp_path / ".jobctl").symlink_to(projects)
    refused(LoginNode(Inventory((Host("localhost"),)), "tiny", str(tmp_path / ".jobctl/tiny")), "is a link")
    assert sorted(str(path.relative_to(projects)) for path in projects.rglob("*")) == [
        "tiny",
        "tiny/run",
        "tiny/thesis",
    ]


def refused(login: LoginNode, why: str) -> None:
    """Try all that changes something on a login node."""
    remedy = "no-permission", "choose a directory of your own with `slurm.directory`"
    for change in (
        lambda: login.send((), ("run",), None, {}),
        lambda: login.write("run/start.json", b"{}"),
        lambda: login.order("7", "stop-1", "stop"),
        lambda: login.submit((), b"{}"),
        login.erase,
    ):
        with pytest.raises(HostError, match=rf"/\.jobctl {why}") as caught:
            change()
        assert (caught.value.code, caught.value.hint) == remedy
