"""What a supervisor does about a decision: the steps that carry it out, and what is kept and told of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.apply.asked import Asked, asked_of
from jobctl.jobspec.deploy.apply.clock import Clock
from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures
from jobctl.jobspec.deploy.apply.executor import Execution, Transition, execute, wanted_state
from jobctl.jobspec.deploy.apply.reconcile import Step, reconcile, takes_over
from jobctl.jobspec.deploy.model.control import JobResult
from jobctl.jobspec.deploy.model.errors import DeployError, NotPrepared, is_unanswered
from jobctl.jobspec.deploy.model.fitness_event import fitness_event
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.unfit import measured_unfit
from jobctl.jobspec.deploy.store.jobdir import JobDir, Pending
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner.context import PlanError
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.supervise.changes import failure_details
from jobctl.jobspec.supervise.decisions import Change, Decision, GiveUp, Grow, Rejoin, Repair, Restart, Succeed
from jobctl.jobspec.supervise.recorder import Recorder
from jobctl.jobspec.supervise.replan import moved_meanwhile, places_of, with_moves, with_possible_moves
from jobctl.jobspec.supervise.timers import Joining, Unfit

NOBODY: Failures = {}


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What became of a decision: whether all of it could be done, the generation that has begun, and the hosts that failed."""

    complete: bool = True
    generation: Generation | None = None
    failed: frozenset[str] = frozenset()


class Actions:
    """Carries decisions out, under the job's lock.

    `pending` is a change that a command could not make; `repeats` says that what is done now was told when it was
    tried before; `unfit` knows the hosts that could not do something; `at_length` surrounds what may take long on hosts.
    """

    def __init__(self, deployer: Deployer, clock: Clock, recorder: Recorder) -> None:
        self.deployer, self.clock, self.recorder = deployer, clock, recorder
        self.inventory = deployer.inventory  # not what the job has by now: following its hosts takes seconds
        self.pending: Pending | None = None
        self.repeats = False
        self.unfit = Unfit()
        self.joining = Joining()
        self.at_length: Callable[[], AbstractContextManager[None]] = nullcontext
        self._failed: dict[str, str] = {}  # what hosts could not do, as last said
        self._bare: set[str] = set()  # hosts that could not start a node for want of files

    def apply(self, decision: Decision, now: Observed) -> ActionOutcome:
        """Carry a decision out. Raises DeployError, PlanError."""
        match decision:
            case Succeed():
                self.end("succeeded", "all nodes ended with code 0")
            case GiveUp():
                ledger = now.control.ledger
                if decision.failure is not None:
                    ledger = ledger.with_failure(decision.failure, self.clock.now())
                    self.deployer.keep(ledger)
                    self.recorder.record("failure", decision.reason, **failure_details(decision.failure, now))
                self.end("failed", decision.reason)
            case Restart():
                failed = self._move(decision, now)
                if failed and decision.may_wait:  # the next decision knows that these hosts are unfit
                    return ActionOutcome(complete=False)
                return self._execute(now, decision, failed)
            case Rejoin():
                return self._rejoin(decision, now)
            case Grow():
                failed = self._provision(self.deployer.plan, decision.hosts)
                return self._bring_in(decision, now, failed) if decision.joins else self._execute(now, decision, failed)
            case Change():
                return self._change(decision, now)
            case Repair():
                return self._execute(now, decision, self._provision(self.deployer.plan, frozenset(decision.spares)))
        return ActionOutcome()

    def _execute(
        self,
        now: Observed,
        decision: Decision,
        failed: Failures = NOBODY,
        plan: Plan | None = None,
        adopt: Callable[[], None] = lambda: None,
    ) -> ActionOutcome:
        """Begin the generation that was decided, or complete the current one.

        `plan`: another than the job's, which `adopt` makes the job's.
        """
        plan = plan or self.deployer.plan
        if plan is None:
            return ActionOutcome()
        anew = decision.cause if isinstance(decision, Restart | Grow | Change) else None
        restart = decision if isinstance(decision, Restart) else None
        asked = _asked(self.pending, self.deployer.job, now) if isinstance(decision, Change) else Asked()
        want = wanted_state(
            self.deployer,
            plan,
            anew=anew,
            replace=frozenset(node.index for node in plan.nodes if asked.recreate),
            begins=anew is not None,
            supervise=False,
            grace=0.0 if restart else None,  # one whose peer is gone hangs in its collective: no time to end
            cleared=frozenset({*restart.moves, *restart.without}) if restart else frozenset(),
            excluded=restart.exclude if restart else frozenset(),
            keep_budget=not isinstance(decision, Restart | Change),
            spares=_prepared(self.deployer, plan, now) if isinstance(decision, Repair) and decision.spares else None,
            joining={} if self.pending is None else self.places(self.pending),
        )
        steps = reconcile(want, now)
        starts = _starts(steps) - set(failed)
        replaced = self.pending is not None and plan is self.deployer.plan  # hosts have the files of a change by now
        failed = {**failed, **self._provision(plan, starts if replaced else starts & self._bare)}
        failure = restart.failure if restart else None
        how = Execution(failure, asked.fresh, failed, adopt=adopt, at_length=self.at_length)
        done = execute(self.deployer, Transition(want, now, steps), self.clock, self._note, how)
        self._tell_failed({host: error for host, error in done.failed.items() if host not in failed})
        if (generation := done.generation) is not None:
            self._failed.clear()
            self.recorder.generation(generation, generation.number, str(anew), done.at)
        return ActionOutcome(generation is not None if anew else not done.failed, generation, frozenset(done.failed))

    def _bring_in(self, decision: Grow, now: Observed, failed: Failures) -> ActionOutcome:
        """Start nodes that join, on hosts that have not `failed`; each gets ready beside what runs, and in no generation yet.

        An earlier launcher of the node there ends: it has no part in what runs.
        """
        plan, cause = self.deployer.plan, f"{decision.cause}; it gets ready while the others train"
        nodes = {node: host for node, host in homes_of(plan).items() if node in decision.joins}
        steps = [
            Step("start", f"node {node} on {host}", cause, node, host=host)
            for node, host in nodes.items()
            if host not in failed
        ]
        for step in steps:
            self._note(step)
        with self.at_length():
            refused = self.deployer.apply(steps)
        self._tell_failed(refused)
        started = [node for node, host in nodes.items() if host not in {**failed, **refused}]
        self.joining.started(now, started, self.clock.now())
        return ActionOutcome(complete=len(started) == len(nodes))

    def cold_spares(self, observed: Observed) -> tuple[str, ...]:
        """Return the spares where no launcher waits: a node has left them, or somebody has removed the container.

        Remains of a node are removed before that. Where a launcher could not be started, `up` tries again.
        """
        plan = self.deployer.plan
        hot = {node.host.name for node in plan.spares} if plan is not None and not observed.strays else set()
        cold = [one.host for one in observed.spares if one.state == "cold" and one.artefact is None and one.host in hot]
        if not cold or plan is None:
            return ()
        never = {*self.deployer.spare_launcher_failures, *self.unfit.hosts(self.clock.now())}
        able = _prepared(self.deployer, plan, observed)
        return tuple(host for host in cold if host in able and host not in never)

    def _change(self, decision: Change, now: Observed) -> ActionOutcome:
        """Make a change that a command has left behind: half done, or not begun."""
        job, pending = self.deployer.job, self.pending
        if pending is None:
            return self._execute(now, decision)
        places = self.places(pending)
        plan = with_moves(pending.plan, pending.source, self.inventory, places) if self.inventory else pending.plan

        def adopt() -> None:
            job.adopt()
            job.keep_plan(plan)
            self.deployer.plan = plan

        return self._execute(now, decision, self._provision(plan, frozenset(places.values())), plan, adopt)

    def places(self, pending: Pending) -> dict[int, str]:
        """Return the hosts of the nodes of a change."""
        return places_of(pending, self.deployer.plan)

    def _rejoin(self, decision: Rejoin, now: Observed) -> ActionOutcome:
        """Start a node again. Its failure is noted after that: a start that is tried again is judged by earlier ones only.

        A start may fail after it has written the node's report again. Then it is noted at once: no later look shows it.
        """
        if not self.repeats:
            self._tell_rejoin(decision, now)
        outcome = self._execute(now, decision)
        started = now.control.placement.get(decision.failure.node) not in outcome.failed
        if decision.counts and (started or not _tells_failure(self.deployer.observe(), decision.failure.node)):
            self.deployer.keep(now.control.ledger.with_failure(decision.failure, self.clock.now()))
        return outcome

    def _tell_rejoin(self, decision: Rejoin, now: Observed) -> None:
        message = f"{decision.cause}; it is started again while the others go on"
        self.recorder.record("failure", message, **failure_details(decision.failure, now), alone=True)

    def _move(self, decision: Restart, now: Observed) -> Failures:
        """Put on new hosts what nodes need that move there, and plan them there; return which hosts cannot take them.

        Nodes whose new hosts cannot take them stay planned where they are. Raises DeployError.
        """
        plan, source, inventory = self.deployer.plan, self.deployer.job.source(), self.deployer.job.inventory()
        if not decision.moves or plan is None or source is None or inventory is None:
            return {}
        moved, failed = self._planned(plan, source, inventory, decision.moves)
        able = {*decision.moves.values()} - set(failed)
        waits = self.deployer.spare_ids(plan)  # where a launcher waits, nothing has to be sent or started
        failed |= self._provision(moved, frozenset(host for host in able if not takes_over(waits, now, host)))
        failed |= self._measure(moved, able - set(failed))
        if failed:  # the others have to do without those
            able -= set(failed)
            rest = {node: host for node, host in decision.moves.items() if host in able}
            moved, others = self._planned(plan, source, inventory, rest)
            failed |= others
        moves = {node: host for node, host in decision.moves.items() if host not in failed}
        if moves and not (failed and decision.may_wait):
            self._keep_moves(moved, moves, "moves from {} to {}")
        return failed

    def _planned(
        self, plan: Plan, source: Mapping[str, Any], inventory: Inventory, moves: Mapping[int, str]
    ) -> tuple[Plan, dict[str, DeployError]]:
        """Return the plan with all moves that can be planned, and which hosts cannot take a node. Raises DeployError."""
        moved, failed = with_possible_moves(plan, source, inventory, moves)
        self._tell_failed(failed)
        return moved, dict(failed)

    def _keep_moves(self, moved: Plan, moves: Mapping[int, str], words: str) -> None:
        """Make a plan the job's in which nodes have other hosts."""
        before = self._adopt(moved)
        for node, host in sorted(moves.items()):
            said = f"node {node} {words.format(before.get(node), host)}"
            self.recorder.record("moved", said, node=node, host=host, **{"from": before.get(node)})

    def _adopt(self, moved: Plan) -> dict[int, str]:
        """Make another plan the job's, and return where nodes were in the last one."""
        plan = self.deployer.plan
        self.deployer.job.keep_plan(moved)
        self.deployer.plan = moved
        return homes_of(plan)

    def follow_moves(self, now: Observed) -> None:
        """Plan nodes where others have moved them. Raises DeployError, PlanError."""
        job, plan, generation = self.deployer.job, self.deployer.plan, now.control.generation
        source, inventory = job.source(), job.inventory()
        moves = moved_meanwhile(plan, generation, job.standing(plan)) if plan is not None else {}
        if plan is None or generation is None or source is None or inventory is None or not moves:
            return
        moved = with_moves(plan, source, inventory, moves)
        job.agree(generation)  # where this supervisor moves a node next is newer than that
        before = self._adopt(moved)
        self.recorder.moved_meanwhile(generation, {node: (before.get(node), host) for node, host in moves.items()})

    def return_moved(self, now: Observed, decision: Decision) -> None:
        """Plan nodes where they are that were to move, if the hosts for that cannot take them."""
        plan, source, inventory = self.deployer.plan, self.deployer.job.source(), self.deployer.job.inventory()
        if plan is None or source is None or inventory is None:
            return
        unfit = self.unfit.hosts(self.clock.now())
        out = {*unfit, *now.unreachable, *inventory.left}
        elsewhere = decision.moves if isinstance(decision, Restart) else {}
        planned = homes_of(plan)
        moves = {
            node: home
            for node, home in now.control.placement.items()
            if planned.get(node, home) != home and planned[node] in unfit and home not in out
        }
        moves = {node: home for node, home in moves.items() if node not in elsewhere}
        if not moves:
            return
        try:
            self._keep_moves(
                with_moves(plan, source, inventory, moves), moves, "does not leave {1}: {0} cannot take it"
            )
        except (DeployError, PlanError) as error:  # its place is taken by now, for example
            self.recorder.once(error.message, "waiting", f"cannot plan nodes where they are: {error.message}")

    def _provision(self, plan: Plan | None, hosts: frozenset[str]) -> Failures:
        """Put on hosts the files of the nodes that start there; return which hosts cannot take them."""
        with self.at_length():
            failed = self.deployer.provision(plan, hosts) if plan and hosts else {}
        self._bare -= hosts
        self._tell_failed(failed)
        return failed

    def _measure(self, plan: Plan, hosts: set[str]) -> Failures:
        """Return which of the hosts that nodes move to are not fit, where the spec has them measured.

        A host that was found unfit before comes up again only if there is no other: then it has to do.
        """
        new = hosts - self.unfit.hosts(self.clock.now())
        if plan.fitness == "off" or not new:
            return {}
        with self.at_length():
            findings = self.deployer.preflight(plan, new, fitness=plan.fitness)
        image = plan.nodes[0].container.image
        if (found := fitness_event(findings, plan.fitness, image)) is not None:
            self.recorder.record("fitness", found[0], **found[1])
        unfit = measured_unfit(findings)
        self._tell_failed(unfit)
        return unfit

    def _tell_failed(self, failed: Failures) -> None:
        for host, error in failed.items():
            if self._failed.get(host) != error.message:
                self.recorder.record("host-failed", error.message, host=host)
            self.unfit.failed(host, self.clock.now(), error.message, away=is_unanswered(error))
            if isinstance(error, NotPrepared):
                self._bare.add(host)
            self._failed[host] = error.message

    def finish_ending(self, observed: Observed) -> None:
        """Tell the launchers that the job is over, as its ledger says."""
        result, plan = observed.control.ledger.result, self.deployer.plan
        if result is not None and result.phase == "stopped" and plan is not None:
            with self.at_length():
                self.deployer.stop_processes(plan.stop_grace)
        elif result is not None:
            self.deployer.finish(0.0 if result.phase == "failed" else 1.0)

    def end(self, phase: str, reason: str) -> None:
        """End the job, as `succeeded` or `failed`: write its result down, and tell the launchers."""
        control = self.deployer.observe().control
        result = JobResult("succeeded" if phase == "succeeded" else "failed", reason, self.clock.now())
        self.deployer.keep(replace(control.ledger, result=result))
        self.deployer.finish(0.0 if phase == "failed" else 1.0)
        self.recorder.end(control.generation, phase, reason, result.at)

    def _note(self, step: Step) -> None:
        if step.kind != "generation" and not self.repeats:
            self.recorder.record("step", str(step), **step.fields())


def _prepared(deployer: Deployer, plan: Plan, observed: Observed) -> Mapping[str, str]:
    """Return the spares that have got what a node needs."""
    spares = deployer.spares(plan)
    return {host: version for host, version in spares.items() if observed.prepared.get(host) == version}


def _tells_failure(observed: Observed, node: int) -> bool:
    seen = observed.node(node)
    return seen is not None and seen.broken


def _asked(pending: Pending | None, job: JobDir, now: Observed) -> Asked:
    """Return what a command was asked besides that has left its change to us."""
    about = job.job_record() if pending is None else pending.about
    return asked_of(about, now.control.generation, waits=pending is not None)


def _starts(steps: Sequence[Step]) -> frozenset[str]:
    """Return the hosts where nodes are started."""
    return frozenset(step.host for step in steps if step.kind in ("start", "replace"))
