"""A job that is up in one place, and that its spec, or its hosts file, has in another by now."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory, dump_inventory
from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.queue import QueueEntry, SlurmLook
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.errors import NotYours, Refused
from jobctl.jobspec.operations.lifecycle.base import UpOptions
from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob
from jobctl.jobspec.operations.resolve import moves
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.spec.hosts import Host
from tests.render.plans import SLURM, planned

PLAN = planned(dict(SLURM)["slurm"], "slurm")
OLD, NEW = "/shared/old", "/shared/new"
NOTHING = SlurmLook(None, 0.0, asked=True)
LEFT = SlurmLook("7", 0.0, asked=True, there=True, files={PurePosixPath("run/start.json"): {"began": 1.0}})
RUNS = replace(LEFT, entry=QueueEntry("7", "RUNNING"))
ENDED = replace(LEFT, files={**LEFT.files, PurePosixPath("run/allocation.json"): {"result": {"phase": "failed"}}})
SILENT = HostError("login1", "unreachable", "no route to host")
Looks: TypeAlias = dict[tuple[str, str], SlurmLook | HostError]


def job_in(tmp_path: Path, login: str, work: str) -> JobDir:
    """Return a job that was brought up through a login node."""
    directory = JobDir(tmp_path / "jobs" / PLAN.job)
    directory.create()
    about = {"spec": str(tmp_path / "job.yaml"), "target": "slurm", "reach": dump_inventory(Inventory((Host(login),)))}
    directory.remember(about, plan_in(work), {})
    return directory


def plan_in(work: str) -> Plan:
    assert PLAN.slurm is not None
    return replace(PLAN, slurm=replace(PLAN.slurm, work=work))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Return what is seen of the job, by login node and directory; it may be filled."""
    found: Looks = {}

    def look(self: LoginNode, *, ask: bool) -> SlurmLook:
        seen = found.get((self.name, self.work), NOTHING)
        if isinstance(seen, HostError):
            raise seen
        return seen

    monkeypatch.setattr(LoginNode, "look", look)
    return found


@pytest.mark.parametrize(
    ("place", "seen", "refused"),
    [
        (("login1", NEW), {("login1", OLD): RUNS}, True),
        (("login1", NEW), {("login1", OLD): LEFT}, True),  # stopped; its secrets are there
        (("login1", NEW), {("login1", OLD): NOTHING}, False),  # its `up` was killed before anything was sent
        (("login1", NEW), {("login1", OLD): SILENT}, True),
        (("login1", NEW), {("login1", OLD): RUNS, ("login1", NEW): RUNS}, False),  # two names of one directory
        (("login1", NEW), {("login1", OLD): LEFT, ("login1", NEW): LEFT}, False),
        (("login2", OLD), {("login1", OLD): RUNS, ("login2", OLD): LEFT}, True),  # two clusters, one file system
        (("login2", OLD), {("login1", OLD): RUNS}, True),
        (("login2", OLD), {("login1", OLD): SILENT, ("login2", OLD): RUNS}, False),  # another way to the same cluster
        (("login2", OLD), {("login1", OLD): SILENT, ("login2", OLD): ENDED}, False),
        (("login2", OLD), {("login1", OLD): SILENT}, True),
        (("login1", OLD), {("login1", OLD): RUNS}, False),
    ],
)
def test_a_job_in_slurm_is_not_submitted_in_a_second_place(
    place: tuple[str, str], seen: Looks, refused: bool, tmp_path: Path, looks: Looks
) -> None:
    looks.update(seen)
    login, work = place
    inventory = Inventory((Host(login),))
    allocation = SlurmAllocation(job_in(tmp_path, "login1", OLD), inventory, work, plan_in(work))
    compiled: Any = SimpleNamespace(path=tmp_path / "job.yaml")
    with pytest.raises(Refused) if refused else nullcontext():
        moves.refuse_move_in_slurm(allocation, compiled, take_over=False)


def test_who_would_move_a_job_in_slurm_is_told_where_it_is(tmp_path: Path, looks: Looks) -> None:
    allocation = SlurmAllocation(job_in(tmp_path, "login1", OLD), Inventory((Host("localhost"),)), NEW, plan_in(NEW))
    job, compiled = SlurmJob(allocation), SimpleNamespace(path=tmp_path / "job.yaml")
    looks["login1", OLD] = RUNS
    with pytest.raises(Refused) as caught:
        job.change(cast("Any", compiled), UpOptions())
    assert (caught.value.message, caught.value.hint) == (
        "job `resnet` is up in /shared/old of login1, and would be brought up in /shared/new too",
        "`jobctl down resnet` first; its checkpoints stay",
    )
    (tmp_path / "job.yaml").touch()
    with pytest.raises(NotYours, match=r"was started from \S*/job.yaml, and is up in /shared/old of login1"):
        job.change(cast("Any", SimpleNamespace(path=tmp_path / "copy" / "job.yaml")), UpOptions(take_over=True))


def test_a_job_in_slurm_whose_place_does_not_answer_moves_if_the_user_says_that_it_has_ended(
    tmp_path: Path, looks: Looks
) -> None:
    allocation = SlurmAllocation(job_in(tmp_path, "login1", OLD), Inventory((Host("localhost"),)), NEW, plan_in(NEW))
    looks["login1", OLD] = SILENT
    compiled: Any = SimpleNamespace(path=tmp_path / "job.yaml")
    with pytest.raises(Refused) as caught:
        moves.refuse_move_in_slurm(allocation, compiled, take_over=False)
    assert (caught.value.message, caught.value.hint) == (
        "nobody can tell whether job `resnet` still runs in /shared/old: login1: no route to host",
        "`jobctl down resnet` once it answers, or `--take-over` if that job has ended",
    )
    moves.refuse_move_in_slurm(allocation, compiled, take_over=True)
