"""A job that is up in one place, and that its spec, or its hosts file, has in another by now."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions, dump_inventory
from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.queue import QueueEntry, SlurmLook
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.errors import NotYours, Refused
from jobctl.jobspec.operations.lifecycle.base import UpOptions
from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob
from jobctl.jobspec.operations.resolve import moves
from jobctl.jobspec.operations.resolve.job import AS_STARTED, Reached, Where, check, compiled_of, job_of_name
from jobctl.jobspec.operations.targets.hosts import OnHosts
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


HOSTS = (Host("h0"), Host("h1", user="ml", dir="/data"))


def hosts_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDir:
    """Return a job that was brought up on HOSTS; `off` has never been reached."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    Path("job.yaml").write_text("name: demo\nframework: torch\nmodule: train\nimage: img\nnodes: '1:3'\n")
    job = job_of_name("demo")
    job.create()
    about = {"target": "ssh", "reach": dump_inventory(Inventory((*HOSTS, Host("off"))))}
    job.remember({**about, "spec": str(tmp_path / "job.yaml")}, PLAN, {})
    job.note_unmet(["off"])
    return job


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("h0\nml@h1 dir=/data\noff dir=/b\nnew dir=/b\n", None),
        ("h0 dir=.jobctl/\nroot@h1 dir=/data/ addr=10.0.0.1\n", None),
        ("h0 dir=/b\nml@h1 dir=/b\n", "on h0, h1 with `dir=~/.jobctl`, and would be brought up with `dir=/b`"),
        ("ml@h0\nml@h1 dir=/data\n", "on h0 with no user, and would be brought up with user `ml`"),
        ("h0 docker=sudo\n", "on h0 with no `docker`, and would be brought up with `docker=sudo`"),
    ],
)
def test_a_job_is_not_brought_up_in_a_second_place_on_its_hosts(
    lines: str, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its containers would go on as they are, by files that nobody reads any more."""
    hosts_job(tmp_path, monkeypatch)
    Path("hosts.txt").write_text(lines)
    compiled = compiled_of(check("job.yaml", None, Where("ssh", Path("hosts.txt"))))
    if words is None:
        moves.refuse_move(compiled, AS_STARTED)
        return
    with pytest.raises(Refused) as caught:
        moves.refuse_move(compiled, AS_STARTED)
    assert (caught.value.message, caught.value.hint) == (
        f"job `demo` is up {words} too",
        "`jobctl down demo` first, or leave the lines of these hosts as they were",
    )


@pytest.mark.parametrize(
    ("config", "lines", "refused"),
    [
        ("Host h0\n  User ml\n", "ml@h0\nml@h1 dir=/data\n", False),
        ("User ml\n", "ml@h0 dir=/b\n", True),
        ("Host h0\n  User other\n", "ml@h0\n", True),
        ("User\n", "ml@h0\n", True),  # nobody can tell
    ],
)
def test_a_line_may_name_the_user_whom_the_configuration_of_ssh_gives(
    config: str, lines: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts_job(tmp_path, monkeypatch)
    Path("hosts.txt").write_text(lines)
    Path("ssh").write_text(config)
    job, options = job_of_name("demo"), SshOptions(Path("ssh"))
    about = {**(job.job_record() or {}), "reach": dump_inventory(Inventory(HOSTS, options))}
    job.remember(about, PLAN, {})
    compiled = compiled_of(check("job.yaml", None, Where("ssh", Path("hosts.txt"))))
    with pytest.raises(Refused) if refused else nullcontext():
        moves.refuse_move(compiled, AS_STARTED)


def test_a_line_may_leave_out_the_user_whom_another_configuration_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = hosts_job(tmp_path, monkeypatch)
    about = {**(job.job_record() or {}), "reach": dump_inventory(Inventory((Host("h0", user="ml"),)))}
    job.remember(about, PLAN, {})
    Path("hosts.txt").write_text("h0\n")
    Path("ssh").write_text("Host h0\n  User ml\n")
    compiled = compiled_of(check("job.yaml", None, Where("ssh", Path("hosts.txt"))))
    moves.refuse_move(compiled, Reached(ssh_config=Path("ssh")))
    with pytest.raises(Refused, match="on h0 with user `ml`, and would be brought up with no user too"):
        moves.refuse_move(compiled, AS_STARTED)


def test_a_job_is_looked_for_where_it_is_on_its_hosts_whatever_a_hosts_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file says how hosts are reached: their ports, say, and the user if the directory is nobody's home."""
    job = hosts_job(tmp_path, monkeypatch)
    Path("hosts.txt").write_text("ml@h0:22 dir=/b docker=sudo\nroot@h1 dir=/b\noff dir=/b\nnew dir=/b\n")
    found = OnHosts().known(job, Reached(hosts=Path("hosts.txt"))).inventory
    assert found is not None
    assert found.hosts == (
        Host("h0", port=22),
        Host("h1", user="root", dir="/data"),
        Host("off", dir="/b"),
        Host("new", dir="/b"),
    )
