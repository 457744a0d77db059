"""A job that several machines know, each with a state directory of its own: whose plan counts."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.reconcile import Wanted, reconcile
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.control import Control, Ledger, ledger_json
from jobctl.jobspec.deploy.model.host_state import HostState
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import Locked
from jobctl.jobspec.deploy.targets import fleet as fleets
from jobctl.jobspec.deploy.targets.fleet import Fleet
from jobctl.jobspec.deploy.targets.host_fleet import ManyHosts
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.operations.errors import NotYours
from jobctl.jobspec.operations.resolve.ownership import refuse_superseded
from jobctl.jobspec.plan.generation import Generation, first_generation
from jobctl.jobspec.render.payload import control_json
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.supervise.loop import is_over
from tests.deploy.apply.test_executor import TWO

FIRST = first_generation(TWO)
SOURCE = {"spec": {"name": "job"}, "count": None, "context": {"directory": "/project", "version": "1"}}
HOSTS = Inventory((Host("h0"), Host("h1")))


def known(path: Path, **changes: Any) -> JobDir:
    """The job as a machine knows it."""
    made = JobDir(path / "jobs" / "job")
    made.create()
    made.remember({"reach": None}, TWO, {**SOURCE, **changes})
    return made


def ordered(job: JobDir, number: int = 2) -> Generation:
    """A generation that a command or a supervisor of a machine has ordered."""
    meeting = replace(FIRST.rendezvous, id=f"job-{number}-{job.id}")
    return replace(FIRST, number=number, rendezvous=meeting, origin=job.origin(TWO))


def running(generation: Generation) -> Observed:
    return Observed(Control(generation, Ledger(1.0)), (), supervised=True)


def deployer(job: JobDir, generation: Generation) -> Any:
    """One that sees this generation run."""
    lock = lambda command: contextlib.nullcontext()  # noqa: E731
    return SimpleNamespace(job=job, observe=lambda: running(generation), lock=lock)


def test_a_job_is_another_one_if_it_is_planned_from_something_else(tmp_path: Path) -> None:
    here = known(tmp_path / "here")
    for name, changes, another in (
        ("spec", {"spec": {"name": "job", "nodes": 3}}, True),
        ("count", {"count": 3}, True),
        ("folder", {"context": {"directory": "/elsewhere"}}, True),
        ("version", {"context": {"directory": "/project", "version": "2"}}, False),
        ("same", {}, False),
    ):
        there = known(tmp_path / name, **changes)
        assert (here.standing(TWO).overruled_by(ordered(there)) is not None) == another, name


def test_what_a_supervisor_knows_by_now_is_over_for_it(tmp_path: Path) -> None:
    """One that has just seen it may end, and is not to begin again."""
    here, there = known(tmp_path / "here"), known(tmp_path / "there", count=3)
    assert not is_over(deployer(here, ordered(here)))
    assert is_over(deployer(here, ordered(there)))
    here.agree(ordered(there))
    assert not is_over(deployer(here, ordered(there)))
    assert is_over(deployer(here, ordered(there, 3)))


def test_commands_that_know_another_job_change_nothing(tmp_path: Path) -> None:
    here, there = known(tmp_path / "here"), known(tmp_path / "there", count=3)
    handle = deployer(here, ordered(there))
    refuse_superseded(handle, running(ordered(here)), take_over=False)
    with pytest.raises(NotYours, match=r"job `job` was changed from .*, and is another one now than is known here"):
        refuse_superseded(handle, handle.observe(), take_over=False)
    refuse_superseded(handle, handle.observe(), take_over=True)


def test_a_command_that_changes_a_job_leaves_its_own_supervisor(tmp_path: Path) -> None:
    here, there = known(tmp_path / "here"), known(tmp_path / "there", count=3)
    for job, number in ((here, 0), (there, 1)):
        want = Wanted(TWO, {0: "a", 1: "a"}, "code", anew="`jobctl restart`", origin=job.origin(TWO))
        assert sum(step.kind == "supervise" for step in reconcile(want, running(ordered(here)))) == number


def test_orders_say_who_has_given_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = known(tmp_path)
    made = Hosts(job, "ssh", HOSTS, TWO)
    monkeypatch.setattr(made._containers, "next_generation", lambda *args: FIRST)
    assert made.next_generation(TWO, None, 0.0, TWO.nodes).origin == job.origin(TWO)


def test_a_host_that_is_not_known_here_does_not_answer(tmp_path: Path) -> None:
    """It may run a node still, although the hosts file of this machine has another host in its place."""
    made = Hosts(known(tmp_path), "ssh", Inventory((Host("h0"), Host("h2"))), TWO)
    seen = {host: HostState((), Control(), {}) for host in ("h0", "h2")}
    seen["h0"] = replace(seen["h0"], control=Control(ordered(made.job), Ledger(1.0)))
    observed = made.fleet.merge(seen, {})
    assert (list(observed.unreachable), observed.node(1)) == (["h1"], observed.members[1])
    assert (observed.members[1].state, observed.members[1].reachable) == ("lost", False)
    assert "h1: job `job` runs there, and it is not among the hosts" in made.failures["h1"].message


class Taken(ManyHosts):
    """Hosts that another supervisor follows for so many more attempts."""

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts

    def following(self, *args: object) -> Any:
        def start() -> None:
            self.attempts -= 1
            if self.attempts >= 0:
                raise Locked({"command": "supervise"}, where="h0")

        return SimpleNamespace(start=start, feed=lambda heard: "feed", close=lambda: None)


def followed(job: JobDir, newest: Generation) -> object:
    """What a supervisor of that machine follows, where one elsewhere watches for another 5 s."""
    job.keep_run(control_json(newest), ledger_json(Ledger(1.0)), None)
    nobody: tuple[HostJob, ...] = ()
    with Fleet(job, HOSTS, nobody, Taken(5), TWO).follow() as feed:
        return feed


def test_a_supervisor_waits_for_its_turn_where_its_machine_has_changed_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(fleets, "time", clock)
    here, there = known(tmp_path / "here"), known(tmp_path / "there", count=3)
    with pytest.raises(Locked):
        followed(here, ordered(there))
    assert (followed(here, ordered(here)), now[0]) == ("feed", 5.0)
