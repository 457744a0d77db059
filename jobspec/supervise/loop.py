"""The supervisor: hear, decide, and apply what was decided through the same steps as `up`.

It keeps nothing that it could not read again from the job's hosts, so it can be killed and started at any time.
Commands go first: it takes the job's lock only to apply steps, and observes again once it has it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from jobctl.jobspec.deploy.apply.clock import Clock
from jobctl.jobspec.deploy.apply.deployer import Deployer, Feed
from jobctl.jobspec.deploy.apply.executor import runs
from jobctl.jobspec.deploy.apply.joining import can_wait
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.observed import Observed, all_take_part
from jobctl.jobspec.deploy.store.lock import Locked, LockLost, read_holder
from jobctl.jobspec.plan.generation import Generation, Standing
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner.context import PlanError
from jobctl.jobspec.supervise.actions import Actions
from jobctl.jobspec.supervise.decide import decide, is_over_time, superseded, why_over
from jobctl.jobspec.supervise.decisions import (
    Change,
    Continue,
    Decision,
    Grow,
    Leave,
    Rejoin,
    Repair,
    Restart,
    Stay,
    Wait,
    World,
)
from jobctl.jobspec.supervise.host_loss import left_to_launchers, lost_nodes, whole_hosts
from jobctl.jobspec.supervise.last_steps import LastSteps
from jobctl.jobspec.supervise.recorder import Recorder
from jobctl.jobspec.supervise.replan import moved_meanwhile
from jobctl.jobspec.supervise.timers import Paused, Retry, Steady, Waited, identity

POLL_INTERVAL = 0.5  # seconds between two looks where nothing is heard of any change: silence has to be noticed too
# The same while something has failed, and settles, or a node is lost, and moves as soon as it may
FAST_POLL_INTERVAL = 0.1
STEADY = 10.0  # seconds, `host_timeout` at most, that a host has to answer before nodes are started on it again
GIVE_WAY = 5.0  # seconds for which a command may be first to begin the next generation after a failure
CONFIRM_TIMEOUT = 5.0  # seconds in which hosts say that they have what they were given


def is_over(deployer: Deployer) -> bool:
    """Say whether there is nothing to supervise still, once no command is at work.

    To be asked by a supervisor that was one until just now: a command that has seen it then leaves none behind.
    """
    if not deployer.job.root.exists():
        return True
    try:
        with deployer.lock("supervisor"):
            plan, observed = deployer.job.plan(), deployer.observe()
            if plan is None or why_over(observed) is not None:
                return True
            return superseded(observed.control.generation, deployer.job.standing(plan)) is not None
    except Locked:
        return False
    except (DeployError, OSError):
        return True


def _all_run(seen: Observed | None) -> bool:
    """Say whether no node needs anybody, as far as anything was seen."""
    return seen is None or all_take_part(seen)


class HostsChanged(Exception):
    """The job has other hosts than this supervisor knows: it has to be started again."""


class Supervisor:
    """Watches one job until it ends."""

    def __init__(self, deployer: Deployer, clock: Clock, say: Callable[[str], None]) -> None:
        self.deployer, self.clock = deployer, clock
        self.recorder = Recorder(deployer.job, clock, say)
        self.actions = Actions(deployer, clock, self.recorder)
        self._stamp: object = None  # of the plan that is known
        self._standing: Standing | None = None  # what the job is by that plan
        self._waited = Waited()
        self._overdue = Waited()  # since the job's time is over
        self._behind: float | None = None  # since when less was heard of than is known
        self._steady = Steady()
        self._frozen = Paused()
        self._steps = LastSteps()
        self._settles = False  # whether it is clear in a moment what was first, or that a lost node cannot run any more
        self._retry, self._following = Retry(), Retry()
        self._paused: object = None  # after whose failure it has paused, until all is well
        self._gathered: object = None  # what was known of the job when launchers' events were collected last
        self._held: str | None = None  # why nodes cannot be started, as last said
        self._seen: Observed | None = None  # what the last look has found
        self._unwritten: str | None = None  # what this machine's own files refused last, since something could be done

    def run(self, feed: Feed) -> str:
        """Watch until there is nothing left to do; return why. Raises HostsChanged."""
        self.actions.at_length = feed.detector.at_length
        self.recorder.record("supervisor-started", "supervisor started")
        while True:
            feed.detector.turned(all_run=_all_run(self._seen))
            try:
                left = self._look(feed)
                feed.detector.silent = False
            except HostError as error:  # a host, or the way to it, that is not there now: the job goes on without us
                left = None if self.deployer.job.root.exists() else Leave("the job is down")
                if left is None:
                    self.recorder.once(error.code, "waiting", error.message, host=error.host)
            except OSError as error:  # a full disk, mostly: what cannot be kept is not begun
                # Launchers that hear no supervisor do what they can by themselves; while all run, they may need its leases.
                feed.detector.silent = not _all_run(self._seen)
                if str(error) != self._unwritten:
                    self._unwritten = str(error)
                    self.recorder.record("waiting", f"cannot act: {error}", lasting=True)
                left = None
                self._retry.failed(str(error), self.clock.now())
                self.clock.sleep(self._retry.pause)
            except Locked as other:
                left = Leave(f"another one, started before, watches the job: {other}")
            if left is not None:
                return self._leave(left)
            feed.wait(FAST_POLL_INTERVAL if self._settles else POLL_INTERVAL)

    def _look(self, feed: Feed) -> Leave | None:
        """Look once, and do what has to be done; return why there is nothing to do any more."""
        observed = self._seen = self._frozen.look(feed.observe(), self.clock.now())
        if self._is_behind(observed, feed):
            return None
        self._gather(observed)
        self.recorder.notice(observed)
        self.actions.unfit.started(whole_hosts(observed))
        if self._has_to_follow(observed.control.generation) and self._follow():
            return None
        decision = self._decide(observed, feed)
        if isinstance(decision, Leave):
            return decision if self._is_left(feed) else None
        feed.detector.left = left_to_launchers(decision, observed)
        self._waited.look(decision, observed, self.clock.now())
        if isinstance(decision, Wait):
            self._settles = not decision.lasting
            self._retry.done()
            self._wait(decision, observed)
            return None
        self._hold(decision, observed)
        self._settles = isinstance(decision, Continue) and any(node.broken for node in observed.members)
        if isinstance(decision, Continue):
            self._unwritten = self._paused = None
            self.recorder.goes_on()
            if isinstance(decision, Stay):
                self.recorder.stay(decision, observed)
            self._retry.done()
        elif not self._retry.waits(identity(decision), self.clock.now()):  # commands that want the lock go first
            self._act(decision, observed, feed)
        return None

    def _gather(self, observed: Observed) -> None:
        """Collect what launchers have kept: at first, when they have begun a generation, and when a host is back."""
        generation = observed.control.generation
        failures = generation.autonomy.failures if generation is not None and generation.autonomy is not None else ()
        known = (generation and generation.rendezvous.id) if failures else None, frozenset(observed.unreachable)
        if known != self._gathered:
            self._gathered = known
            self.deployer.events().gather()

    def _has_to_follow(self, generation: Generation | None) -> bool:
        """Say whether others have moved nodes that are elsewhere in the plan: launchers, or a command on another machine."""
        moves = moved_meanwhile(self._plan(), generation, self._standing)
        return bool(moves) and superseded(generation, self._standing) is None

    def _follow(self) -> bool:
        """Plan nodes where others have moved them; say whether the next decision has to wait for that.

        By the old plan, nodes would be sent back to the hosts that they have left.
        """
        what = "follow"
        if self._following.waits(what, self.clock.now()):
            return False
        try:
            with self.deployer.lock("supervisor"):
                self.actions.follow_moves(self.deployer.observe())
            return True
        except (Locked, LockLost, HostError) as error:
            self.recorder.once(str(error), "waiting", f"cannot plan nodes where they are now: {error}")
            return True
        except (PlanError, DeployError) as error:  # which lasts: commands that want the lock go first
            self._following.failed(what, self.clock.now())
            self.recorder.once(error.message, "waiting", f"cannot plan nodes where they are now: {error.message}")
        return False

    def _is_behind(self, observed: Observed, feed: Feed) -> bool:
        """Say whether not all of what we have just done was heard of yet, for a few seconds at most.

        While a host is silent, what we know counts as heard: see Fleet.merge. So what hosts tell after that is all there is.
        """
        generation, now = observed.control.generation, self.clock.now()
        if generation is None or generation == feed.detector.generation:
            self._behind = None
            return False
        self._behind = now if self._behind is None else min(self._behind, now)  # the clock may have been set back
        if now - self._behind > CONFIRM_TIMEOUT:
            feed.detector.begin_anew()  # somebody took the job down, and up again
        return True

    def _wait(self, decision: Wait, observed: Observed) -> None:
        nodes = [node.node for node in lost_nodes(observed)]
        self.recorder.once(decision.reason, "waiting", decision.reason, lasting=decision.lasting, nodes=nodes)

    def _hold(self, decision: Decision, observed: Observed) -> None:
        """Tell, once, of nodes that are tried again where they could not be started; the job waits for them."""
        held = decision.held if isinstance(decision, Restart | Repair | Rejoin) else None
        if held is not None and held != self._held:
            nodes = [node.node for node in observed.members if not node.alive]
            self.recorder.record("waiting", held, lasting=True, nodes=nodes)
        self._held = held

    def _is_left(self, feed: Feed) -> bool:
        """Say whether there is nothing to supervise once no command is at work: one that restarts stops the job first."""
        try:
            with self.deployer.lock("supervisor"):
                observed = self.deployer.observe()
                left = isinstance(self._decide(observed, feed), Leave)
                if left and observed.is_half_ended:  # who wrote down that it is over was killed before it was
                    self.actions.finish_ending(observed)
                if left:
                    self.recorder.ending(observed)
                return left
        except Locked:
            return False
        except LockLost as lost:
            self.recorder.once(lost.message, "waiting", lost.message)
            return False

    def _decide(self, observed: Observed, feed: Feed) -> Decision:
        plan = self._plan()
        if plan is None:
            return Leave("the job is down")
        now = self.clock.now()
        if is_over_time(observed, plan.recovery, now):
            self._overdue.wait(now)
        else:
            self._overdue.done()
        return decide(self._steps.complete(observed), plan.recovery, now, self._world(observed, plan, feed, now))

    def _plan(self) -> Plan | None:
        """Return the plan as `up` has changed it meanwhile, None if the job is down. Raises HostsChanged."""
        stamp = self.deployer.job.stamp()
        if stamp != self._stamp:
            plan = self.deployer.job.plan()
            if plan is not None and self.deployer.job.inventory() != self.actions.inventory:
                raise HostsChanged
            self._stamp, self.deployer.plan, self.actions.pending = stamp, plan, self.deployer.job.pending()
            self._standing = None if plan is None else self.deployer.job.standing(plan)
        return self.deployer.plan

    def _world(self, observed: Observed, plan: Plan, feed: Feed, now: float) -> World:
        there = [host for host in self.deployer.places() if host not in observed.unreachable]
        may_move = plan.checkpoint is None or plan.checkpoint.shared
        free = self.deployer.free_hosts(observed) if may_move else ()
        # A command that is at work on a change makes it; one that has ended in the middle leaves it to us.
        job = self.deployer.job
        at_work = {read_holder(path).get("pid") for path in (job.lock, job.waiting_lock)} - {None, os.getpid()}
        pending = None if at_work else self.actions.pending
        whole = pending is not None and {*self.actions.places(pending).values()} <= {*there} & pending.prepared
        return World(
            cleared=feed.detector.cleared(),
            too_few=feed.detector.too_few(),
            free_hosts=self.actions.unfit.order(free, now),
            planned=homes_of(plan),
            unfit=self.actions.unfit.hosts(now),
            refusing=self.actions.unfit.refusing(now),
            rejoining={n.index: n.launch.rejoin_after for n in plan.nodes if n.launch.rejoin is not None},
            ending=frozenset(node.index for node in plan.nodes if node.launch.regroups),
            least=plan.min_nodes,
            waited=self._waited.so_far,
            settled=self._steady.look(there, now, min(STEADY, plan.recovery.host_timeout)),
            change="all hosts that the change needs answer" if whole else None,
            cold_spares=self.actions.cold_spares(observed),
            joining=self.actions.joining.look(observed, now),
            patient=frozenset(node.index for node in plan.nodes if can_wait(node)),
            overdue=self._overdue.so_far,
            standing=self._standing,
        )

    def _leave(self, decision: Leave) -> str:
        if self.deployer.job.job_record() is not None:
            self.recorder.record("supervisor-ended", f"supervisor ended: {decision.why}")
        return decision.why

    def _act(self, decision: Decision, observed: Observed, feed: Feed) -> None:
        if isinstance(decision, Rejoin):
            self._pause(decision)
        if isinstance(decision, Restart) and not decision.may_wait:
            decision, observed = self._tell_failure(decision, observed, feed)
            self._pause(decision)
            self._give_way()
        self.actions.repeats = self._retry.what == identity(decision)
        try:
            with self.deployer.lock("supervisor"):
                done = self._apply_or_end(decision, observed, feed)
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
            self._retry.failed(identity(decision), self.clock.now())
            words = f"cannot {'change' if isinstance(decision, Change | Grow) else 'restart'} the job: {error.message}"
            self.recorder.once(error.message, "waiting", words, lasting=True)

    def _pause(self, decision: Restart | Rejoin) -> None:
        """Wait before nodes are started again: once, however often, and wherever, that has to be tried."""
        failure = decision.failure
        whose = failure.generation, failure.node if isinstance(decision, Rejoin) else None
        if whose != self._paused:
            self._paused = whose
            with self.actions.at_length():
                self.clock.sleep(decision.delay)

    def _give_way(self) -> None:
        """Let a command go first that waits in the midst of a change: after a failure it begins the next generation at once."""
        until = self.clock.now() + GIVE_WAY
        while read_holder(self.deployer.job.waiting_lock) and self.clock.now() < until:
            self.clock.sleep(FAST_POLL_INTERVAL)

    def _tell_failure(self, decision: Restart, observed: Observed, feed: Feed) -> tuple[Restart, Observed]:
        """Tell of the failure, once; return the decision, and what it was made on."""
        first = observed  # whose generation has failed
        if decision.failure.kind == "hang":  # all nodes have said by now where their processes stand
            observed = self.deployer.observe()
            again = self._decide(observed, feed)
            decision = again if isinstance(again, Restart) else decision
        if self.recorder.is_news(decision.failure, first):  # last: it takes note that this one is told
            self.recorder.failure(decision, observed)
        return decision, observed

    def _apply_or_end(self, decision: Decision, observed: Observed, feed: Feed) -> bool:
        """Carry a decision out, or end the job if that cannot be done and nothing runs that could go on.

        With the lock held: a command that waited for it would count on launchers that end. Raises DeployError, PlanError.
        """
        try:
            return self._apply(decision, observed, feed)
        except (HostError, LockLost):
            raise
        except (DeployError, PlanError) as error:
            changes = isinstance(decision, Change | Grow)  # what runs goes on without it
            if runs(observed) and (changes or isinstance(error, DeployError)):  # a plan does not mend itself
                raise
            self.actions.end("failed", f"cannot restart: {error.message}. {error.hint or ''}".strip())
            return True

    def _apply(self, decision: Decision, observed: Observed, feed: Feed) -> bool:
        """Carry a decision out that still holds now that nobody else changes the job; say whether all of it was done."""
        now = self._frozen.look(self.deployer.observe(), self.clock.now())
        again = self._decide(now, feed)
        if now.control != observed.control or type(again) is not type(decision):
            return False  # what was seen is over, or was half of it
        if isinstance(again, Restart | Rejoin | Repair):
            self.actions.return_moved(now, again)
        outcome = self.actions.apply(again, now)
        if outcome.generation is not None:
            feed.detector.expect(outcome.generation)
        return outcome.complete
