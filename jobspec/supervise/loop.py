"""The supervisor: hear, decide, and apply what was decided through the same steps as `up`.

It keeps nothing that it could not read again from the job's hosts, so it can be killed and started at any time.
Commands go first: it takes the job's lock only to apply steps, and observes again once it has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from jobctl.jobspec.deploy.apply.clock import Clock
from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures, Feed
from jobctl.jobspec.deploy.apply.executor import Execution, execute, runs, wanted
from jobctl.jobspec.deploy.apply.reconcile import Step, reconcile
from jobctl.jobspec.deploy.host.lock import LockLost
from jobctl.jobspec.deploy.model.control import JobResult
from jobctl.jobspec.deploy.model.errors import AWAY, UNHEARD, DeployError, HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import Pending
from jobctl.jobspec.deploy.store.lock import Locked
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner.context import PlanError
from jobctl.jobspec.supervise.changes import failure_details
from jobctl.jobspec.supervise.decide import decide, over
from jobctl.jobspec.supervise.decisions import (
    Change,
    Continue,
    Decision,
    GiveUp,
    Grow,
    Leave,
    Rejoin,
    Repair,
    Restart,
    Succeed,
    Wait,
    World,
)
from jobctl.jobspec.supervise.pauses import Retry, Steady, Unfit, identity
from jobctl.jobspec.supervise.recorder import Recorder
from jobctl.jobspec.supervise.replan import with_moves

LOOK = 0.5  # seconds between two looks where nothing is heard of any change: silence has to be noticed too
SOON = 0.1  # the same while something has failed, and settles
STEADY = 10.0  # seconds, `host_timeout` at most, that a host has to answer before nodes are started on it again
UNANSWERED = UNHEARD | frozenset(AWAY)  # codes of hosts that do not answer, or whose engines do not
BEHIND = 5.0  # seconds in which hosts say that they have what they were given


NOBODY: Failures = {}


def is_over(deployer: Deployer) -> bool:
    """Say whether there is nothing to supervise still, once no command is at work.

    To be asked by a supervisor that was one until just now: a command that has seen it then leaves none behind.
    """
    if not deployer.job.root.exists():
        return True
    try:
        with deployer.lock("supervisor"):
            return deployer.job.plan() is None or over(deployer.observe()) is not None
    except Locked:
        return False
    except (DeployError, OSError):
        return True


class HostsChanged(Exception):
    """The job has other hosts than this supervisor knows: it is to be started anew."""


class Supervisor:
    """Watches one job until it ends."""

    def __init__(self, deployer: Deployer, clock: Clock, say: Callable[[str], None]) -> None:
        self.deployer, self.clock = deployer, clock
        self.recorder = Recorder(deployer.job, clock, say)
        self.inventory = deployer.inventory  # not what the job has by now: following its hosts takes seconds
        self._stamp: object = None  # of the plan that is known
        self._pending: Pending | None = None  # a change that a command could not make
        self._waiting: float | None = None  # since when there is nothing to do but wait
        self._behind: float | None = None  # since when less was heard of than is known
        self._steady = Steady()
        self._settles = False  # whether something has failed, and it is not clear yet what was first
        self._retry = Retry()
        self._repeats = False  # whether what is done now was told when it was tried before
        self._unwritten: str | None = None  # what this machine's own files refused last, since something could be done
        self._failed: dict[str, str] = {}  # what hosts could not do, as last said
        self._unfit = Unfit()

    def run(self, feed: Feed) -> str:
        """Watch until there is nothing left to do; return why. Raises HostsChanged."""
        self.recorder.record("supervisor-started", "supervisor started")
        self.detector = feed.detector
        while True:
            try:
                left = self._look(feed)
            except HostError as error:  # a host, or the way to it, that is not there now: the job goes on without us
                left = None if self.deployer.job.root.exists() else Leave("the job is down")
                if left is None:
                    self.recorder.once(error.code, "waiting", error.message, host=error.host)
            except (
                OSError
            ) as error:  # a full disk, mostly: nothing can be kept, and so nothing begun, until there is room
                if str(error) != self._unwritten:
                    self._unwritten = str(error)
                    self.recorder.record("waiting", f"cannot act: {error}")
                left = None
                self._retry.failed(str(error), self.clock.now())
                self.clock.sleep(self._retry.pause)
            except Locked as other:
                left = Leave(f"another one, started before, watches the job: {other}")
            if left is not None:
                return self._leave(left)
            feed.wait(SOON if self._settles else LOOK)

    def _look(self, feed: Feed) -> Leave | None:
        """Look once, and do what has to be done; return why there is nothing to do any more."""
        observed = feed.observe()
        if self._is_behind(observed, feed):
            return None
        self.recorder.notice(observed)
        decision = self._decide(observed, feed)
        if isinstance(decision, Leave):
            return decision if self._is_left(feed) else None
        if isinstance(decision, Wait):
            self._settles = False
            self._retry.done()
            self._wait(decision)
            return None
        self._waiting = None
        self._settles = isinstance(decision, Continue) and any(node.broken for node in observed.members)
        if isinstance(decision, Continue):
            self._unwritten = None
            self.recorder.forget()
            self._retry.done()
        elif not self._retry.waits(identity(decision), self.clock.now()):  # commands that want the lock go first
            self._act(decision, observed, feed)
        return None

    def _is_behind(self, observed: Observed, feed: Feed) -> bool:
        """Say whether not all of what we have just done was heard of yet."""
        generation, now = observed.control.generation, self.clock.now()
        if generation is None or generation == feed.detector.generation:
            self._behind = None
            return False
        self._behind = now if self._behind is None else self._behind
        if now - self._behind > BEHIND and not observed.unreachable:
            feed.detector.begin_anew()  # somebody took the job down, and up again
        return True

    def _wait(self, decision: Wait) -> None:
        if self._waiting is None:
            self._waiting = self.clock.now()
        self.recorder.once(decision, "waiting", decision.reason)

    def _is_left(self, feed: Feed) -> bool:
        """Say whether there is nothing to supervise once no command is at work: one that restarts stops the job first."""
        try:
            with self.deployer.lock("supervisor"):
                observed = self.deployer.observe()
                left = isinstance(self._decide(observed, feed), Leave)
                if left and observed.is_half_ended:  # who wrote down that it is over was killed before it was
                    self._finish_ending(observed)
                return left
        except Locked:
            return False
        except LockLost as lost:
            self.recorder.once(lost.message, "waiting", lost.message)
            return False

    def _finish_ending(self, observed: Observed) -> None:
        """Tell the launchers that the job is over, as its ledger says."""
        result, plan = observed.control.ledger.result, self.deployer.plan
        if result is not None and result.phase == "stopped" and plan is not None:
            self.deployer.stop_processes(plan.stop_grace)
        elif result is not None:
            self.deployer.finish(0.0 if result.phase == "failed" else 1.0)

    def _decide(self, observed: Observed, feed: Feed) -> Decision:
        plan = self._plan()
        if plan is None:
            return Leave("the job is down")
        now = self.clock.now()
        return decide(observed, plan.recovery, now, self._world(observed, plan, feed, now))

    def _plan(self) -> Plan | None:
        """Return the plan as `up` has changed it meanwhile, None if the job is down. Raises HostsChanged."""
        stamp = self.deployer.job.stamp()
        if stamp != self._stamp:
            plan = self.deployer.job.plan()
            if plan is not None and self.deployer.job.inventory() != self.inventory:
                raise HostsChanged
            self._stamp, self.deployer.plan, self._pending = stamp, plan, self.deployer.job.pending()
        return self.deployer.plan

    def _world(self, observed: Observed, plan: Plan, feed: Feed, now: float) -> World:
        there = [host for host in self.deployer.where() if host not in observed.unreachable]
        may_move = plan.checkpoint is None or plan.checkpoint.shared
        free = self.deployer.free_hosts(observed) if may_move else ()
        pending = self._pending
        whole = pending is not None and {*self._places(pending).values()} <= {*there} & pending.prepared
        return World(
            cleared=feed.detector.cleared(),
            too_few=feed.detector.too_few(),
            free_hosts=self._unfit.order(free, now),
            planned={node.index: node.host.name for node in plan.nodes},
            unfit=self._unfit.hosts(now),
            rejoining={n.index: n.launch.rejoin_after for n in plan.nodes if n.launch.rejoin is not None},
            ending=frozenset(node.index for node in plan.nodes if node.launch.regroups),
            least=plan.min_nodes,
            waited=0.0 if self._waiting is None else now - self._waiting,
            settled=self._steady.look(there, now, min(STEADY, plan.recovery.host_timeout)),
            change="all hosts that the change needs answer" if whole else None,
        )

    def _leave(self, decision: Leave) -> str:
        if self.deployer.job.about() is not None:
            self.recorder.record("supervisor-ended", f"supervisor ended: {decision.why}")
        return decision.why

    def _act(self, decision: Decision, observed: Observed, feed: Feed) -> None:
        if isinstance(decision, Rejoin):
            self.clock.sleep(decision.delay)
        if isinstance(decision, Restart):
            if not self.recorder.has_told(decision.failure.generation):
                if decision.failure.kind == "hang":  # all nodes have said by now where their processes stand
                    observed = self.deployer.observe()
                    again = self._decide(observed, feed)
                    decision = again if isinstance(again, Restart) else decision
                self.recorder.failure(decision, observed)
            self.clock.sleep(decision.delay)
        self._repeats = self._retry.what == identity(decision)
        try:
            with self.deployer.lock("supervisor"):
                now = self.deployer.observe()
                again = self._decide(now, feed)
                if now.control != observed.control or type(again) is not type(decision):
                    done = False  # what was seen is over, or was half of it
                else:
                    if isinstance(again, Restart | Rejoin | Repair):
                        self._return_moved(now, again)
                    done = self._apply(again, now)
            if done and not isinstance(decision, Repair):  # that one is over when it is not decided again
                self._retry.done()
            else:
                self._retry.failed(identity(decision), self.clock.now())
            feed.refresh()  # files that we, or somebody else, have changed tell nobody
        except Locked as locked:
            self.recorder.record("waiting", f"cannot act: the job is {locked}")
        except HostError:
            self._retry.failed(identity(decision), self.clock.now())
            raise
        except LockLost as lost:
            self._retry.failed(identity(decision), self.clock.now())
            self.recorder.record("waiting", lost.message)
        except (DeployError, PlanError) as error:
            if isinstance(decision, Change | Grow) and runs(observed):  # what runs goes on without it
                self._retry.failed(identity(decision), self.clock.now())
                self.recorder.once(error.message, "waiting", f"cannot change the job: {error.message}")
            else:
                self._end("failed", f"cannot restart: {error.message}. {error.hint or ''}".strip())

    def _apply(self, decision: Decision, now: Observed) -> bool:
        """Carry a decision out; say whether all of it could be done."""
        match decision:
            case Succeed():
                self._end("succeeded", "all nodes ended with code 0")
            case GiveUp():
                ledger = now.control.ledger
                if decision.failure is not None:
                    ledger = ledger.with_failure(decision.failure)
                    self.deployer.keep(ledger)
                    self.recorder.record("failure", decision.reason, **failure_details(decision.failure, now))
                self._end("failed", decision.reason)
            case Restart():
                return self._execute(now, decision, self._move(decision))
            case Rejoin():
                if not self._repeats:  # one failure counts once, however often the start is tried
                    self._keep_rejoin(decision, now)
                return self._execute(now, decision)
            case Grow():
                return self._execute(now, decision, self._provision(self.deployer.plan, decision.hosts))
            case Change():
                return self._change(decision, now)
            case Repair():
                return self._execute(now, decision)
        return True

    def _change(self, decision: Change, now: Observed) -> bool:
        """Make a change that a command has left behind: half done, or not begun."""
        job, pending = self.deployer.job, self._pending
        if pending is None:
            return self._execute(now, decision)
        places = self._places(pending)
        plan = with_moves(pending.plan, pending.source, self.inventory, places) if self.inventory else pending.plan

        def adopt() -> None:
            job.adopt()
            job.keep_plan(plan)
            self.deployer.plan = plan

        return self._execute(now, decision, self._provision(plan, frozenset(places.values())), plan, adopt)

    def _places(self, pending: Pending) -> dict[int, str]:
        """Return the hosts of the nodes of a change: as it says, but of a node that has moved since, where that is."""
        homes = {node.index: node.host.name for node in self.deployer.plan.nodes} if self.deployer.plan else {}
        moved = {node: host for node, host in homes.items() if pending.placement.get(node, host) != host}
        return {node.index: moved.get(node.index, node.host.name) for node in pending.plan.nodes}

    def _keep_rejoin(self, decision: Rejoin, now: Observed) -> None:
        if decision.counts:
            self.deployer.keep(now.control.ledger.with_failure(decision.failure))
        message = f"{decision.cause}; it is started again while the others go on"
        self.recorder.record("failure", message, **failure_details(decision.failure, now))

    def _move(self, decision: Restart) -> Failures:
        """Put on new hosts what nodes need that move there, and plan them there; return which hosts cannot take them.

        Nodes whose new hosts cannot take them stay planned where they are. Raises DeployError, PlanError.
        """
        plan, source, inventory = self.deployer.plan, self.deployer.job.source(), self.deployer.job.inventory()
        if not decision.moves or plan is None or source is None or inventory is None:
            return {}
        moved = with_moves(plan, source, inventory, decision.moves)
        failed = self._provision(moved, frozenset(decision.moves.values()))
        moves = {node: host for node, host in decision.moves.items() if host not in failed}
        if moves:
            self._keep_moves(with_moves(plan, source, inventory, moves), moves, "moves from {} to {}")
        return failed

    def _keep_moves(self, moved: Plan, moves: Mapping[int, str], words: str) -> None:
        """Make a plan the job's in which nodes have other hosts."""
        plan = self.deployer.plan
        self.deployer.job.keep_plan(moved)
        self.deployer.plan = moved
        before = {node.index: node.host.name for node in plan.nodes} if plan else {}
        for node, host in sorted(moves.items()):
            said = f"node {node} {words.format(before.get(node), host)}"
            self.recorder.record("moved", said, node=node, host=host, **{"from": before.get(node)})

    def _return_moved(self, now: Observed, decision: Decision) -> None:
        """Plan nodes where they are that were to move, if the hosts for that cannot take them."""
        plan, source, inventory = self.deployer.plan, self.deployer.job.source(), self.deployer.job.inventory()
        if plan is None or source is None or inventory is None:
            return
        unfit = self._unfit.hosts(self.clock.now())
        out = {*unfit, *now.unreachable, *inventory.left}
        elsewhere = decision.moves if isinstance(decision, Restart) else {}
        planned = {node.index: node.host.name for node in plan.nodes}
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
        """Put on hosts what nodes need that are to be started there; return which hosts cannot take them."""
        failed = self.deployer.provision(plan, hosts) if plan else {}
        self._tell_failed(failed)
        return failed

    def _tell_failed(self, failed: Failures) -> None:
        for host, error in failed.items():
            if self._failed.get(host) != error.message:
                self.recorder.record("host-failed", error.message, host=host)
            away = getattr(error, "code", None) in UNANSWERED
            self._unfit.failed(host, self.clock.now(), away=away)
            self._failed[host] = error.message

    def _execute(
        self,
        now: Observed,
        decision: Decision,
        failed: Failures = NOBODY,
        plan: Plan | None = None,
        adopt: Callable[[], None] = lambda: None,
    ) -> bool:
        """Begin the generation that was decided, or complete the current one; say whether all of it could be done.

        `plan`: another than the job's, which `adopt` makes the job's.
        """
        plan = plan or self.deployer.plan
        if plan is None:
            return True
        anew = decision.cause if isinstance(decision, Restart | Grow | Change) else None
        restart = decision if isinstance(decision, Restart) else None
        want = wanted(
            self.deployer,
            plan,
            anew=anew,
            begins=anew is not None,
            supervise=False,
            grace=0.0
            if restart
            else None,  # a process whose peer is gone hangs in its collective: it gets no time to end
            cleared=frozenset({*restart.moves, *restart.without}) if restart else frozenset(),
            excluded=restart.exclude if restart else frozenset(),
            keep_budget=not isinstance(decision, Restart | Change),
        )
        steps = reconcile(want, now)
        if self._pending is not None and plan is self.deployer.plan:  # its files are on the hosts already
            failed = {
                **failed,
                **self._provision(plan, frozenset(s.host for s in steps if s.kind in ("start", "replace"))),
            }
        how = Execution(failure=restart.failure if restart else None, failed=failed, adopt=adopt)
        done = execute(self.deployer, want, steps, now, self.clock, self._note, how)
        self._tell_failed({host: error for host, error in done.failed.items() if host not in failed})
        generation = done.generation
        if generation is not None:
            self._failed.clear()
            self.detector.expect(generation)
            self.recorder.generation(generation, generation.number, str(anew), done.at)
        return generation is not None if anew else not done.failed

    def _end(self, phase: str, reason: str) -> None:
        control = self.deployer.observe().control
        result = JobResult("succeeded" if phase == "succeeded" else "failed", reason, self.clock.now())
        self.deployer.keep(replace(control.ledger, result=result))
        self.deployer.finish(0.0 if phase == "failed" else 1.0)
        self.recorder.record(phase, f"job {phase}: {reason}")

    def _note(self, step: Step) -> None:
        if step.kind != "generation" and not self._repeats:
            self.recorder.record("step", str(step), node=step.node)
