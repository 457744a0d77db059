"""`up` and `scale` of a job that runs: what runs goes on until new nodes can begin at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply import executor, joining
from jobctl.jobspec.deploy.apply.asked import asked_of
from jobctl.jobspec.deploy.apply.executor import Done, Transition
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import Control, JobResult, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.deploy.store.lock import Locked
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.launcher.report.node_report import StandbyState
from jobctl.jobspec.operations.errors import ChangedMeanwhile, NotYours, Refused
from jobctl.jobspec.operations.lifecycle.base import JobRequest, UpOptions
from jobctl.jobspec.operations.lifecycle.bring_up import BringUp
from jobctl.jobspec.operations.lifecycle.on_hosts import HostsJob
from jobctl.jobspec.operations.lifecycle.records import record_of, source_of
from jobctl.jobspec.operations.reporter import Silent
from jobctl.jobspec.operations.resolve.job import Reached, Where, check, compiled_of, job_of_name
from jobctl.jobspec.operations.resolve.planning import deployer_of, inventory_for, plan_of
from jobctl.jobspec.plan.generation import first_generation

SPEC = "name: small\nframework: torch\nmodule: train\nimage: img\ncheckpoint: /shared\nnodes: '2:3'\n"


class Told(Silent):
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def say(self, text: str) -> None:
        self.told.append(text)

    def step(self, step: Step) -> None:
        self.told.append(str(step))

    def show(self, text: str, done: tuple[int, int] | None = None) -> None:
        self.told.append(text)


class Running:
    """A job of two nodes that gets a third one, on hosts that are only played: how they look, one look after another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("job.yaml").write_text(SPEC)
        Path("hosts.txt").write_text("a\nb\nc\n")
        compiled = compiled_of(check("job.yaml", None, Where("ssh", Path("hosts.txt"))))
        self.plan = plan_of(compiled)
        self.deployer = deployer_of(job_of_name("small"), "ssh", inventory_for(compiled, Reached()), self.plan)
        assert isinstance(self.deployer, Hosts)
        self.reporter, self.looks, self.refuses = Told(), list[Observed](), dict[str, HostError]()
        monkeypatch.setattr(Hosts, "observe", lambda deployer: self.looks.pop(0))
        monkeypatch.setattr(Hosts, "apply", self.apply)
        monkeypatch.setattr(joining, "POLL_INTERVAL", 0.0)
        monkeypatch.setattr(Hosts, "let_in", lambda deployer, command: nullcontext())
        monkeypatch.setattr(Hosts, "lock", lambda deployer, command, break_it: nullcontext())
        self.bring_up = BringUp(self.deployer, compiled, self.plan, UpOptions(supervise=False), self.reporter)

    def apply(self, steps: Sequence[Step]) -> dict[str, HostError]:
        return self.refuses

    def seen(self, standby: str | None = None, *, ledger: Ledger | None = None) -> Observed:
        """Return the job with two nodes that run, and a third one with such a standby."""
        two = replace(self.plan, nodes=self.plan.nodes[:2])
        code, artefacts = None, self.deployer.ids(self.plan)
        control = Control(first_generation(two), ledger or Ledger(1.0, code))
        nodes = [
            ObservedNode(n.index, "trainer", n.host.name, "running", artefacts[n.index], launcher=1, generation=1)
            for n in two.nodes
        ]
        if standby is not None:
            state = StandbyState(standby, "memory is short" if standby == "off" else None)
            nodes.append(ObservedNode(2, "trainer", "c", "starting", artefacts[2], launcher=1, standby=state))
        return Observed(control, tuple(nodes), supervised=True)

    def keep(self) -> None:
        """Have brought the job up with two nodes, and have a third one get ready."""
        two, job, compiled = replace(self.plan, nodes=self.plan.nodes[:2]), self.deployer.job, self.bring_up.compiled
        job.create()
        known, source = record_of(compiled, two, self.deployer.inventory), source_of(compiled, two, {})
        job.remember(known, two, source)
        job.propose(known, self.plan, source)
        self.deployer.plan, self.looks[:] = two, [self.seen("warming")]

    def bring_in(self, *looks: Observed) -> tuple[list[str], list[str], list[str]]:
        """Let the new node get ready; return what was done, what is left to do, and the hosts that have failed."""
        self.looks[:] = looks
        done, left, failed = self.bring_up._bring_in(self.bring_up.change(self.seen()), {})
        assert self.looks == []
        return [str(step) for step in done], [str(step) for step in left.steps], sorted(failed)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    return Running(monkeypatch)


START, BEGIN = "start node 2 on c: not running", "generation 2: nodes changed from 2 to 3"


def test_the_next_generation_begins_once_the_new_node_is_ready(running: Running) -> None:
    assert [str(step) for step in running.bring_up.change(running.seen()).steps] == [START, BEGIN]
    found = running.bring_in(running.seen("warming"), running.seen("ready"), running.seen("ready"))
    assert found == ([START], [BEGIN], [])
    assert running.reporter.told == [START, "waits for the standby of node 2; what runs goes on until then"]


def test_a_node_that_will_begin_cold_is_named_with_the_reason(running: Running) -> None:
    assert running.bring_in(*2 * [running.seen("off")]) == ([START], [BEGIN], [])
    assert running.reporter.told == [START, "node 2 starts cold: memory is short"]


def test_a_job_that_has_ended_meanwhile_does_not_begin_again(running: Running) -> None:
    over = running.seen("warming", ledger=Ledger(1.0, None, result=JobResult("failed", "no", 2.0)))
    with pytest.raises(Refused, match="job `small` failed while new nodes got ready: it was not changed"):
        running.bring_in(running.seen("warming"), over, over)


def test_a_job_that_was_taken_down_meanwhile_stays_down(running: Running) -> None:
    down = Observed(Control(), (), supervised=False)
    with pytest.raises(
        Refused, match="job `small` was taken down while new nodes got ready: this command changed nothing"
    ):
        running.bring_in(running.seen("warming"), down, down)


@pytest.mark.parametrize(("state", "said"), [("running", "being stopped"), ("exited", "stopped")])
def test_scale_begins_no_job_that_another_command_has_stopped_before_it_has_the_lock(
    running: Running, state: Any, said: str
) -> None:
    running.bring_up.options = replace(running.bring_up.options, check=False)
    stopped = running.seen(ledger=Ledger(1.0, None, result=JobResult("stopped", "stopped by the user", 2.0)))
    running.looks[:] = [replace(stopped, nodes=tuple(replace(node, state=state) for node in stopped.nodes))]
    with pytest.raises(Refused, match=f"job `small` is {said}: there is nothing to scale"):
        running.bring_up.scale(running.seen(), running.deployer.job.stamp())
    assert running.looks == []


def test_scale_does_not_go_by_what_it_knew_before_another_command_changed_the_job(running: Running) -> None:
    running.bring_up.options = replace(running.bring_up.options, check=False)
    since = running.deployer.job.stamp()
    running.deployer.job.create()
    running.deployer.job.keep_plan(running.plan)
    with pytest.raises(ChangedMeanwhile, match="another command has changed job `small` meanwhile"):
        running.bring_up.scale(running.seen(), since)


def test_a_host_that_cannot_start_its_node_is_left_out(running: Running) -> None:
    running.refuses = {"c": HostError("c", "cannot-start", "no")}
    assert running.bring_in(running.seen()) == ([START], [START, BEGIN], ["c"])


def test_hosts_are_not_asked_again_just_after_all_have_answered(running: Running) -> None:
    running.bring_up.options = replace(running.bring_up.options, check=False)
    assert running.bring_up._left_out(running.seen()) == {}
    running.looks[:] = [running.seen()]
    silent = replace(running.seen(), unreachable={"b": "not heard"})
    assert (running.bring_up._left_out(silent), running.looks) == ({}, [])


@pytest.mark.parametrize(("silent", "held"), [("b", True), ("c", False)])
def test_the_supervisor_of_an_earlier_up_stays_where_the_change_has_to_wait(
    running: Running, silent: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third node waits for host b, which has one of the two: nothing is changed. Without c there is no third node."""
    away, ended = {silent: HostError(silent, "no-route", "it does not answer")}, list[object]()
    monkeypatch.setattr(Hosts, "failures", property(lambda deployer: away))
    monkeypatch.setattr(Hosts, "prepare", lambda deployer, plan, start: away)
    monkeypatch.setattr(
        "jobctl.jobspec.operations.lifecycle.bring_up.leave_none", lambda job, reporter: ended.append(job)
    )
    running.bring_up.options = replace(running.bring_up.options, check=False)
    running.looks[:] = [replace(running.seen(), unreachable={silent: "not heard"})] * 2
    applied = running.bring_up.run()
    assert (applied.held, sorted(applied.failed), len(ended)) == (held, [silent], 0 if held else 1)


def test_a_stopped_job_that_does_not_begin_again_is_not_ready(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it then, and takes its old end for a new one: the engine of host b hangs."""
    away = {"b": HostError("b", "docker-hangs", "its Docker Engine does not answer")}
    monkeypatch.setattr(Hosts, "failures", property(lambda deployer: away))
    monkeypatch.setattr(Hosts, "prepare", lambda deployer, plan, start: away)
    running.bring_up.options = replace(running.bring_up.options, check=False)
    stopped = running.seen(ledger=Ledger(1.0, None, result=JobResult("stopped", "stopped by the user", 2.0)))
    nodes = tuple(replace(node, state="exited", launcher=None) for node in stopped.nodes[:1])
    running.looks[:] = [replace(stopped, nodes=nodes)] * 3
    monkeypatch.setattr(executor, "execute", lambda *_: Done(None, away))
    applied = running.bring_up.run()
    assert (applied.ready, applied.held, applied.code) == (False, False, 4)


def test_hosts_let_restart_in_while_it_reads_what_it_needs_here(running: Running) -> None:
    asked = list[str]()

    def lock(command: str, *, break_it: bool) -> Any:
        asked.append("lock")
        raise Locked({})

    job = SimpleNamespace(name="small", source=lambda: asked.append("files"), job_record=dict, stamp=tuple)
    deployer: Any = SimpleNamespace(plan=running.plan, job=job, lock=lock, preconnect=lambda: asked.append("connect"))
    with pytest.raises(NotYours):
        HostsJob(deployer).restart(None, JobRequest(), running.reporter)
    assert asked == ["connect", "files", "lock"]


def test_restart_leaves_nodes_alone_that_get_ready_to_join(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scale` waits for the standby of node 2, and lets others have the lock meanwhile."""
    done = list[str]()

    def execute(deployer: Any, transition: Transition, *rest: Any) -> Done:
        done.extend(map(str, transition.steps))
        return Done(transition.observed.control.generation, {})

    monkeypatch.setattr(executor, "execute", execute)
    monkeypatch.setattr(Hosts, "preconnect", lambda deployer: None)
    running.keep()
    HostsJob(running.deployer).restart(None, JobRequest(), running.reporter)
    assert done == ["generation 2: `jobctl restart`"]


def test_restart_names_silent_hosts_of_nodes_and_no_idle_spare(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(deployer: Any, transition: Transition, *rest: Any) -> Done:
        return Done(transition.observed.control.generation, {"c": HostError("c", "", "no room")})

    monkeypatch.setattr(executor, "execute", execute)
    monkeypatch.setattr(Hosts, "preconnect", lambda deployer: None)
    running.keep()
    running.deployer.fleet.down = {host: HostError(host, "", "silent") for host in ("b", "spare")}
    done = HostsJob(running.deployer).restart(None, JobRequest(), running.reporter)
    assert sorted(done.failed) == ["b", "c"]


@pytest.mark.parametrize("command", ["up", "scale", "restart"])
def test_each_step_is_recorded_as_one_of_the_command_that_does_it(
    command: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(
        deployer: Any, transition: Transition, clock: object, note: Callable[[Step], None], how: object
    ) -> Done:
        for step in transition.steps:
            note(step)
        return Done(transition.observed.control.generation, {})

    def apply(bring_up: BringUp, left: object, observed: Observed) -> Done:
        return bring_up._execute(bring_up.change(observed), None, {})

    monkeypatch.setattr(executor, "execute", execute)
    monkeypatch.setattr(BringUp, "_apply", apply)
    monkeypatch.setattr(Hosts, "preconnect", lambda deployer: None)
    running.keep()
    job, running.bring_up.options = running.deployer.job, UpOptions(check=False)
    do = {
        "up": running.bring_up.run,
        "scale": lambda: running.bring_up.scale(running.seen(), job.stamp()),
        "restart": lambda: HostsJob(running.deployer).restart(None, JobRequest(), running.reporter),
    }
    do[command]()
    told = map(json.loads, job.events.read_text().splitlines())
    assert {line["by"] for line in told if line["event"] == "step"} == {command}


def test_a_change_that_waits_is_kept_with_what_up_was_asked_besides(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = {"b": HostError("b", "no-route", "it does not answer")}
    monkeypatch.setattr(Hosts, "failures", property(lambda deployer: away))
    monkeypatch.setattr(Hosts, "prepare", lambda deployer, plan, start: away)
    monkeypatch.setattr(Hosts, "exists", lambda deployer, path: path.endswith("fresh-1"))
    monkeypatch.setattr(Hosts, "make_directory", lambda deployer, path: None)
    running.bring_up.options = replace(running.bring_up.options, check=False, supervise=True, fresh=True)
    seen = running.seen()
    running.looks[:] = [replace(seen, unreachable={"b": "not heard"})] * 2
    assert running.bring_up.run().held
    pending = running.deployer.job.pending()
    assert pending is not None
    asked = asked_of(pending.about, seen.control.generation, waits=True)
    assert (asked.recreate, asked.fresh and asked.fresh.checkpoint_dir) == (False, "/shared/fresh-2")
