"""`up` of a job with `fitness`: hosts that are not fit are left out, or nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable, RuntimeInputs
from jobctl.jobspec.deploy.apply.executor import Done
from jobctl.jobspec.deploy.model.control import NOTHING, Control
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.lock import LockLost
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.operations.errors import HostsFailed, OperationError, PartlyDone
from jobctl.jobspec.operations.lifecycle.base import UpOptions
from jobctl.jobspec.operations.lifecycle.bring_up import BringUp
from jobctl.jobspec.operations.lifecycle.records import source_of
from jobctl.jobspec.operations.lifecycle.unfit_hosts import plan_on
from jobctl.jobspec.operations.reporter import Silent
from jobctl.jobspec.operations.resolve.job import Reached, Where, check, compiled_of, job_of_name
from jobctl.jobspec.operations.resolve.planning import deployer_of, inventory_for, plan_of
from jobctl.jobspec.plan.generation import AutonomyTerms, LastMove, first_generation

SPEC = "name: small\nframework: torch\nmodule: train\nimage: img\nfitness: quick\ncheckpoint: /shared\nnodes: "
HOSTS = "a\nb\nc\ns1 spare\ns2 spare\n"


class Told(Silent):
    """A reporter that keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


class Up:
    """An `up` of a job on hosts that are only played: `slow` ones are measured as unfit."""

    def __init__(self, nodes: str, hosts: str, slow: Iterable[str], monkeypatch: pytest.MonkeyPatch) -> None:
        Path("job.yaml").write_text(SPEC + nodes)
        Path("hosts.txt").write_text(hosts)
        self.compiled = compiled_of(check("job.yaml", None, Where("ssh", Path("hosts.txt"))))
        inventory = inventory_for(self.compiled, Reached())
        plan = plan_of(self.compiled)
        deployer = deployer_of(job_of_name("small"), "ssh", inventory, plan)
        self.checked: list[tuple[list[str], str]] = []
        self.reporter = Told()

        def preflight(found: Any, plan: Any, hosts: Iterable[str], *, deep: bool = False, fitness: str = "off") -> Any:
            self.checked.append((sorted(hosts), fitness))
            text = "all cores: 4.7 Mround/s, 21 % below the median of 3 (5.9)"
            return [Finding(host, "compute", "error", text, "slow-host", "look") for host in slow if host in set(hosts)]

        monkeypatch.setattr(Hosts, "preflight", preflight)
        monkeypatch.setattr(Hosts, "observe", lambda self: Observed(NOTHING, (), supervised=False))
        self.bring_up = BringUp(deployer, self.compiled, plan, UpOptions(), self.reporter)

    def left_out(self) -> dict[str, str]:
        """Return the hosts that are left out, by their codes."""
        return {h: e.code for h, e in self.bring_up._left_out().items() if isinstance(e, HostError)}

    @property
    def homes(self) -> list[str]:
        """Where the nodes are planned."""
        assert self.bring_up.deployer.plan == self.bring_up.plan
        return [node.host.name for node in self.bring_up.plan.nodes]


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))


def test_fit_hosts_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Up("3", HOSTS, [], monkeypatch)
    assert (up.left_out(), up.homes, up.checked) == ({}, ["a", "b", "c"], [(["a", "b", "c"], "quick")])


def test_a_spare_takes_the_place_of_a_host_that_is_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Up("3", HOSTS, ["b"], monkeypatch)
    assert (up.left_out(), up.homes) == ({}, ["a", "s1", "c"])
    assert up.checked == [(["a", "b", "c"], "quick"), (["a", "c", "s1"], "quick")]
    text = "b: all cores: 4.7 Mround/s, 21 % below the median of 3 (5.9)"
    assert up.reporter.warnings == [f"node 1 runs on spare s1: {text}"]
    assert [one.host for one in up.bring_up.measured] == ["b"]  # for the report


def test_a_spare_that_does_not_answer_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Up("3", HOSTS, ["b"], monkeypatch)
    off = {"s1": HostError("s1", "no-route", "it does not answer")}
    monkeypatch.setattr(Hosts, "failures", property(lambda self: off))
    assert (up.left_out(), up.homes) == ({}, ["a", "s2", "c"])


@pytest.mark.parametrize(("failed", "watched"), [(["s1"], True), (["a", "s1"], True), (["a", "b", "c", "s1"], False)])
def test_somebody_watches_a_job_unless_none_of_its_hosts_has_started(
    failed: list[str], watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spare whose disk is full is no reason to leave the job alone."""
    up = Up("3", HOSTS, [], monkeypatch)
    errors = {host: HostError(host, "disk-full", "there is no room") for host in failed}
    begun, started = first_generation(up.bring_up.plan), list[object]()
    monkeypatch.setattr(Hosts, "prepare", lambda self, plan, start: {})
    monkeypatch.setattr(BringUp, "_execute", lambda self, change, fresh, failed: Done(begun, errors))
    monkeypatch.setattr("jobctl.jobspec.operations.lifecycle.bring_up.start_supervisor", started.append)
    up.bring_up.deployer.job.create()
    change = up.bring_up.change(Observed(NOTHING, (), supervised=False))
    up.bring_up._carry_out(change, RuntimeInputs({}, {}), {}, None)
    assert bool(started) is watched


@pytest.mark.parametrize(
    ("runs", "lost", "error"),
    [(False, False, HostsFailed), (True, False, PartlyDone), (False, True, PartlyDone), (True, True, PartlyDone)],
)
def test_a_change_that_was_cut_off_is_not_called_no_change(
    runs: bool, lost: bool, error: type[OperationError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each host that went silent is named. Where nothing ran before, `up` again is all that there is to say.

    Where the lock was `lost`, hosts have answered, and nodes may have begun.
    """
    up = Up("3", HOSTS, [], monkeypatch)
    silent = AllUnreachable({"b": HostError("b", "lost", "gone")}, Observed(NOTHING, (), supervised=False))
    generation = first_generation(up.bring_up.plan) if runs else None

    def execute(bring_up: BringUp, *_: Any) -> Done:
        bring_up._begin()
        raise LockLost("the lock on this machine was lost") if lost else silent

    monkeypatch.setattr(Hosts, "prepare", lambda self, plan, start: {})
    monkeypatch.setattr(BringUp, "_execute", execute)
    up.bring_up.deployer.job.create()
    change = up.bring_up.change(Observed(Control(generation), (), supervised=False))
    with pytest.raises(error) as failed:
        up.bring_up._carry_out(change, RuntimeInputs({}, {}), {}, None)
    assert (type(failed.value), dict(failed.value.failures)) == (error, {} if lost else dict(silent.failures))


def test_a_spare_that_is_not_fit_either_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Up("3", HOSTS, ["b", "s1"], monkeypatch)
    assert (up.left_out(), up.homes) == ({}, ["a", "s2", "c"])


@pytest.mark.parametrize("slow", [["b", "s1", "s2"], ["a", "b", "c"]])
def test_without_enough_fit_hosts_nothing_is_changed(slow: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    up = Up("3", HOSTS, slow, monkeypatch)
    with pytest.raises(HostsFailed, match="nothing was changed") as error:
        up.left_out()
    assert set(error.value.failures or {}) <= set(slow)


def test_a_job_with_a_range_starts_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Up("'2:3'", "a\nb\nc\n", ["b"], monkeypatch)
    assert (up.left_out(), up.homes) == ({"b": "slow-host"}, ["a", "b", "c"])


def test_a_fixed_number_of_nodes_without_spares_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Up("3", "a\nb\nc\n", ["b"], monkeypatch)
    with pytest.raises(HostsFailed, match="needs 3 nodes, and hosts for 2 are fit") as error:
        up.left_out()
    assert list(error.value.failures or {}) == ["b"]


def test_nodes_whose_checkpoints_are_on_their_hosts_do_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SPEC", SPEC.replace("/shared", "{dir: /own, shared: false}"))
    up = Up("3", HOSTS, ["b"], monkeypatch)
    with pytest.raises(HostsFailed, match="needs 3 nodes"):
        up.left_out()


def test_nodes_stay_where_their_launchers_have_moved_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody watched then: only the hosts know of it."""
    up = Up("3", HOSTS, [], monkeypatch)
    first = first_generation(up.bring_up.plan)
    members = tuple(replace(member, host="s1" if member.node == 1 else member.host) for member in first.members)
    alone = AutonomyTerms(1, (), (1, 2), moved=LastMove(2, "id", 1))
    moved = Observed(Control(replace(first, members=members, autonomy=alone)), (), supervised=False)
    up.bring_up.change(moved)
    assert up.homes == ["a", "s1", "c"]
    gone = Up("3", HOSTS.replace("s1 spare\n", ""), [], monkeypatch)
    gone.bring_up.change(moved)
    assert gone.homes == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("broken", "code", "tries"),
    [
        (["b"], "cannot-start", ["a b c", "a s1 c"]),
        (["b", "s1"], "cannot-start", ["a b c", "a s1 c", "a s2 c"]),
        (["b", "s1", "s2"], "cannot-start", ["a b c", "a s1 c", "a s2 c"]),
        (["a", "b"], "disk-full", ["a b c", "s1 s2 c"]),
        (["b"], "docker-down", ["a b c"]),  # it may be back in a moment
    ],
)
def test_a_spare_takes_the_place_of_a_host_that_cannot_start_its_node(
    broken: list[str], code: str, tries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    up, tried = Up("3", HOSTS, [], monkeypatch), list[str]()
    monkeypatch.setattr(Hosts, "prepare", lambda self, plan, start: {})
    up.bring_up.deployer.job.create()
    first = first_generation(up.bring_up.plan)

    def execute(change: Any, fresh: Any, failed: Any) -> Done:
        tried.append(" ".join(up.homes))
        bad = {home: HostError(home, code, "no") for home in up.homes if home in broken}
        return Done(None if bad else first, bad)

    monkeypatch.setattr(up.bring_up, "_execute", execute)
    done = up.bring_up._execute_on_spares(execute(None, None, {}), None, RuntimeInputs({}, {}))
    assert (tried, done.generation is None) == (tries, any(home in broken for home in tries[-1].split()))


class Compared(Exception):
    """An `up` that has the lock is about to compare its plan with what runs."""


@pytest.fixture(name="waits")
def _waits(monkeypatch: pytest.MonkeyPatch) -> Up:
    """An `up` with another value of a key than the job was started with, which waits for the lock."""
    old = Up("3\nenv: {A: old}\n", HOSTS, [], monkeypatch)
    up = Up("3\nenv: {A: new}\n", HOSTS, [], monkeypatch)
    job, plan = up.bring_up.deployer.job, up.bring_up.plan
    job.create()
    job.remember({}, plan, source_of(old.compiled, plan, {}))
    up.bring_up = BringUp(up.bring_up.deployer, up.compiled, plan, UpOptions(), up.reporter)
    return up


def compared(up: Up, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Let it have the lock; return which keys it finds changed, and where it has the nodes."""

    def compare(self: BringUp, now: Observed) -> None:
        raise Compared

    monkeypatch.setattr(BringUp, "change", compare)
    with pytest.raises(Compared):
        up.bring_up._apply({}, Observed(NOTHING, (), supervised=False))
    return [one.key for one in up.bring_up.changed or ()], up.homes


def test_up_changes_what_it_is_asked_to(waits: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(waits, monkeypatch) == (["env.A"], ["a", "b", "c"])


def test_up_does_not_make_a_change_that_another_up_has_made_meanwhile(
    waits: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret's other value alone would begin the job again."""
    plan = waits.bring_up.plan
    waits.bring_up.deployer.job.remember({}, plan, source_of(waits.compiled, plan, {}))
    assert compared(waits, monkeypatch) == ([], ["a", "b", "c"])


def test_up_leaves_a_node_where_a_supervisor_has_moved_it_meanwhile(waits: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    waits.bring_up.deployer.job.keep_plan(plan_on(waits.compiled, waits.bring_up.plan, {1: "s1"}))
    assert compared(waits, monkeypatch) == (["env.A"], ["a", "s1", "c"])


def test_up_keeps_a_node_off_a_host_that_it_has_found_unfit(waits: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what is known of the job has changed: in that, the node has not moved."""
    waits.bring_up._go_by(plan_on(waits.compiled, waits.bring_up.plan, {0: "s2"}))
    waits.bring_up.deployer.job.keep_plan(plan_on(waits.compiled, waits.bring_up.plan, {0: "a", 1: "s1"}))
    assert compared(waits, monkeypatch) == (["env.A"], ["s2", "s1", "c"])
