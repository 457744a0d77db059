"""The supervisor: observe, decide, and apply what was decided through the same steps as `up`.

It keeps nothing that it could not read again from the job's files, so it can be killed and started at any time.
Commands go first: it takes the job's lock only to apply steps, and observes again once it has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jobctl.jobspec.deploy import events
from jobctl.jobspec.deploy.carry_out import carry_out, wanted
from jobctl.jobspec.deploy.clock import Clock
from jobctl.jobspec.deploy.control import Result
from jobctl.jobspec.deploy.deployer import Deployer
from jobctl.jobspec.deploy.errors import DeployError
from jobctl.jobspec.deploy.lock import Locked
from jobctl.jobspec.deploy.observed import Observed
from jobctl.jobspec.deploy.reconcile import Step, reconcile
from jobctl.jobspec.deploy.transport import HostError
from jobctl.jobspec.supervise.decide import (
    Continue,
    Decision,
    GiveUp,
    Leave,
    Repair,
    Restart,
    Succeed,
    decide,
)
from jobctl.jobspec.supervise.notice import changes


class Supervisor:
    """Watches one job until it ends."""

    def __init__(self, deployer: Deployer, clock: Clock, say: Callable[[str], None]) -> None:
        self.deployer, self.clock, self.say = deployer, clock, say
        self.seen: Observed | None = None
        self._told: object = None  # what was said last of something that goes on

    def run(self) -> str:
        """Watch until there is nothing left to do; return why."""
        self._record("supervisor-started", "supervisor started")
        while True:
            try:
                left = self._look()
            except HostError as error:  # a host, or the way to it, that is not there now: the job goes on without us
                self._once(error.code, "waiting", error.message, host=error.host)
                left = None
            if left is not None:
                return self._leave(left)
            self.clock.sleep(self.deployer.interval)

    def _look(self) -> Leave | None:
        """Look once, and do what has to be done; return why there is nothing to do any more."""
        observed = self.deployer.observe()
        self._notice(observed)
        decision = self._decide(observed)
        if isinstance(decision, Leave):
            return decision if self._is_left() else None
        if isinstance(decision, Continue):
            self._told = None
        else:
            self._act(decision, observed)
        return None

    def _once(self, what: object, kind: str, message: str, /, **details: object) -> None:
        """Record something that goes on, once."""
        if self._told != what:
            self._told = what
            self._record(kind, message, **details)

    def _is_left(self) -> bool:
        """Say whether there is nothing to supervise once no command is at work: one that restarts stops the job first."""
        try:
            with self.deployer.lock("supervisor"):
                return isinstance(self._decide(self.deployer.observe()), Leave)
        except Locked:
            return False

    def _decide(self, observed: Observed) -> Decision:
        plan = self.deployer.job.plan()
        if plan is None:
            return Leave("the job is down")
        self.deployer.plan = plan  # `up` may have changed it since
        return decide(observed, plan.recovery, self.clock.now())

    def _leave(self, decision: Leave) -> str:
        if self.deployer.job.about() is not None:
            self._record("supervisor-ended", f"supervisor ended: {decision.why}")
        return decision.why

    def _act(self, decision: Decision, observed: Observed) -> None:
        if isinstance(decision, Restart):
            if self._told != decision.failure:
                self._told = decision.failure
                self._tell_failure(decision)
            self.clock.sleep(decision.delay)
        try:
            with self.deployer.lock("supervisor"):
                now = self.deployer.observe()
                if self._outdated(observed, now) or type(self._decide(now)) is not type(decision):
                    return  # what was seen is over, or was half of it
                self._apply(decision, now)
        except Locked as locked:
            self._record("waiting", f"cannot act: the job is {locked}")
        except HostError:
            raise
        except DeployError as error:
            self._end("failed", f"cannot restart: {error.message}. {error.hint or ''}".strip())

    def _outdated(self, then: Observed, now: Observed) -> bool:
        return then.control != now.control

    def _apply(self, decision: Decision, now: Observed) -> None:
        if isinstance(decision, Succeed):
            self._end("succeeded", "all nodes ended with code 0")
        if isinstance(decision, GiveUp):
            ledger = now.control.ledger
            if decision.failure is not None:
                ledger = ledger.with_failure(decision.failure)
                self.deployer.keep(ledger)
                self._record("failure", decision.reason, tail=list(decision.failure.tail), log=decision.failure.log)
            self._end("failed", decision.reason)
        if isinstance(decision, Restart):
            self._restart(decision, now)
        if isinstance(decision, Repair):
            self._carry_out(now, anew=None)

    def _restart(self, decision: Restart, now: Observed) -> None:
        self._carry_out(now, anew=decision.cause, decision=decision)

    def _carry_out(self, now: Observed, anew: str | None, decision: Restart | None = None) -> None:
        plan = self.deployer.plan
        if plan is None:
            return
        # A process whose peer is gone hangs in its collective: it gets no time to end.
        want = wanted(self.deployer, plan, anew=anew, supervise=False, grace=0.0)
        failure = decision.failure if decision else None
        done = carry_out(self.deployer, want, reconcile(want, now), now, self.clock, self._note, failure=failure)
        for host, error in done.failed.items():
            self._record("host-failed", error.message, host=host)
        generation = done.generation
        if generation is not None:
            self._record(
                "generation",
                f"generation {generation.number} begins: {anew}",
                generation=generation.number,
                members=[member.node for member in generation.members],
                port=generation.rendezvous.port,
            )

    def _end(self, phase: str, reason: str) -> None:
        control = self.deployer.observe().control
        result = Result("succeeded" if phase == "succeeded" else "failed", reason, self.clock.now())
        self.deployer.keep(replace(control.ledger, result=result))
        self.deployer.finish(0.0 if phase == "failed" else 1.0)
        self._record(phase, f"job {phase}: {reason}")

    def _tell_failure(self, decision: Restart) -> None:
        failure = decision.failure
        wait = f", after {decision.delay:g} s" if decision.delay else ""
        self._record(
            "failure",
            f"{decision.cause} at step {failure.progress}; restarting all nodes{wait}"
            if failure.progress is not None
            else f"{decision.cause}; restarting all nodes{wait}",
            node=failure.node,
            rank=failure.rank,
            exit_code=failure.exit_code,
            kind=failure.kind,
            progress=failure.progress,
            log=failure.log,
            tail=list(failure.tail),
        )

    def _notice(self, observed: Observed) -> None:
        for kind, message, details in changes(self.seen, observed):
            self._record(kind, message, **details)
        self.seen = observed

    def _note(self, step: Step) -> None:
        if step.kind != "generation":
            self._record("step", str(step), node=step.node)

    def _record(self, kind: str, message: str, /, **details: object) -> None:
        events.record(self.deployer.job.events, self.clock.now(), kind, message, **details)
        self.say(message)
