"""What launchers do about a failure by themselves, where no supervisor handles it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import NodeFailure
from jobctl.jobspec.launcher.order.order import Rendezvous
from jobctl.jobspec.launcher.peers.lease import TICK, UNSUPERVISED
from jobctl.jobspec.launcher.peers.orders import LEFT_ALONE
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.restart_policy import delay, is_a_bug, matches, without_progress
from jobctl.jobspec.launcher.system.files import note
from jobctl.jobspec.launcher.system.network import free_port
from jobctl.jobspec.launcher.system.processes import EXIT_MOVES, EXIT_TAKEN, boot_time

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Protocol, Tuple

    from jobctl.jobspec.launcher.order.autonomy_terms import AutonomyTerms, FailureRule
    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.report.node_report import NodeReport
    from jobctl.jobspec.launcher.report.report import Report

    class OrderKeeper(Protocol):
        """Where launchers agree on the newest order: a LeaseSession with etcd, or PeerOrders."""

        @property
        def gone(self) -> Dict[int, float]:
            """The members that are not there, and for how many seconds."""

        @property
        def missing(self) -> Optional[str]:
            """What this launcher waits for before it may begin a generation, None for nothing."""

        @property
        def headway(self) -> Headway:
            """How far the generation has come, as far as is known."""

        own: Callable[[], Headway]  # the same of this node alone
        failed: Callable[[], Optional[Tuple[str, float]]]  # how this node has failed, and when

        @property
        def failed_first(self) -> Optional[int]:
            """The node whose failure is the cause of this one's, None if there is none."""

        def has_lease(self, now: float) -> bool:
            """Return whether there is a lease."""

        def unheard_since(self, at: float) -> List[int]:
            """Return the members that have not said how they are since then."""

        def propose(self, order: Order, after: Optional[str] = None) -> None:
            """Begin `order` if the generation `after` still runs."""

        def say_once(self, text: str) -> None:
            """Say what this launcher waits for."""


SETTLE = 0.5  # seconds before launchers begin anything: the failure that is the cause of others comes first
LEFT_FOR = 10.0  # seconds more that the node which failed first gets to begin one: it may leave that to a supervisor
# The same before they end the job: by then all others that live have said how they are
SETTLE_BEFORE_END = SETTLE + TICK


class FailedNode:
    """A node that has failed, and what the launchers may do about it by themselves: begin the next generation.

    A small part of what supervisors decide (supervise/failures.py): whatever is not plain waits for one.
    """

    def __init__(self, report: NodeReport, launch: Launch, now: float) -> None:
        failure = report.failure
        assert failure is not None
        self.since = now
        self.step = report.progress
        self.proposed: Optional[float] = None
        self.failure = NodeFailure(
            generation=report.generation,
            at=failure.at,
            node=launch.node,
            host=launch.host,
            rank=failure.rank,
            exit_code=failure.exit_code,
            kind=failure.kind,
            progress=report.progress,
            ran=max(0.0, failure.at - (report.started_at or failure.at)),
            log=failure.log,
            tail=failure.abridged().tail,
            reason=report.reason,
            alike=[],
            rest={},
        )

    def learn(self, headway: Headway) -> None:
        """Take over how far the generation had come: often rank 0 alone counts steps, and a new launcher knows nothing.

        A node that counts knows best at which step it has failed: others may be ahead.
        """
        step = headway.step if self.step is None else self.step
        self.failure = changed(self.failure, progress=step, ran=max(self.failure.ran, headway.ran))

    def waits(self, order: Order, session: OrderKeeper, supervised: bool, now: float) -> Optional[str]:
        """Return what this launcher waits for before it may begin anything, None if it may."""
        if order.autonomy is None or order.command != "run":
            return "waits for the supervisor"
        if supervised:
            return LEFT_ALONE
        if not session.has_lease(now):
            return "has no lease, and so begins nothing"
        first = session.failed_first
        if session.missing is not None or first is None or now - self.since >= self.delay(order) + LEFT_FOR:
            return session.missing
        return "leaves it to node %d, which failed first" % first

    def rule(self, order: Order) -> Optional[FailureRule]:
        """Return the first of the order's rules that is about this failure, None if none is."""
        rules = order.autonomy.rules if order.autonomy is not None else ()
        return next((rule for rule in rules if matches(rule.exit, rule.log, self.failure)), None)

    def final(self, order: Order) -> Optional[str]:
        """Return why the job has failed for good, None if it may go on: as a supervisor judges it (supervise/failures.py)."""
        terms, failure = order.autonomy, self.failure
        if terms is None:
            return None
        rule = self.rule(order)
        if rule is not None and rule.do == "fail":
            return rule.hint or "a rule says not to retry here"
        if failure.kind == "setup":
            return "a failed `setup` is not retried"
        if failure.kind == "start" and (rule is None or rule.do != "restart"):
            return "what cannot be started is not retried"
        if failure.kind == "exhausted":
            return "the restarts of `recovery.max_restarts` are used up"
        earlier = without_progress(failure, order.failures)
        if rule is None and any(is_a_bug(failure, other) for other in earlier):
            return "failed the same way again, before any progress: a bug, not a fault"
        if terms.restarts_left(failure.at) <= 0:
            return "the restarts of `recovery.max_restarts` are used up"
        return None

    def excluded(self, order: Order) -> bool:
        """Say whether a rule has the node leave its host."""
        rule = self.rule(order)
        return rule is not None and rule.do == "exclude_host"

    def end(self, order: Order, why: str) -> Order:
        """Return the order with which launchers end themselves and the job, because of this failure."""
        code = self.failure.exit_code or 1
        # What a signal has ended, or what found another launcher, is started again by the cluster; and this is the end.
        code = code if code < 128 and code not in (EXIT_TAKEN, EXIT_MOVES) else 1
        return changed(order, command="finish", exit_code=code, why="%s: %s" % (self.failure.reason, why))

    def give_up(self, order: Order, why: str) -> Order:
        """Return the order with which launchers on hosts end the job, because of this failure."""
        return given_up(order, self.failure, "node %d: %s; %s" % (self.failure.node, self.failure.reason, why))

    def delay(self, order: Order) -> float:
        """Return how many seconds to wait first: for the failure that is the cause of others, longer without progress."""
        return max(SETTLE, delay(self.failure, order.failures))

    def is_due(self, order: Order, session: OrderKeeper, final: bool, now: float) -> bool:
        """Say whether launchers have waited for long enough; before the end of the job, for what all others say.

        A launcher that says nothing may have been killed, and not be missed yet: then this failure is its consequence.
        A launcher of an earlier version says nothing for ever.
        """
        if self.waits_for_etcd(now) or now - self.since < (SETTLE_BEFORE_END if final else self.delay(order)):
            return False
        late = now - self.since >= order.lease_limit + LEFT_FOR
        return not final or late or not session.unheard_since(self.since + SETTLE)

    def waits_for_etcd(self, now: float) -> bool:
        """Say whether a generation was proposed a moment ago."""
        return self.proposed is not None and now - self.proposed <= UNSUPERVISED

    def successor(self, order: Order, terms: AutonomyTerms) -> Order:
        """Return the generation after `order`, of the same members."""
        return changed(
            order,
            number=order.number + 1,
            grace=0.0,  # a process whose peer is gone hangs in its collective: it gets no time to end
            rendezvous=next_rendezvous(order, order.rendezvous.address),
            autonomy=terms.with_failure(self.failure),
        )


def next_rendezvous(order: Order, address: str) -> Rendezvous:
    """Return where the members of the generation after `order` meet, and its id; `address` is that of their first one."""
    terms = order.autonomy
    assert terms is not None
    port = free_port(address, order.rendezvous.port + 1, *terms.ports)
    return Rendezvous(address, port, "%s-%d-%s" % (order.job, order.number + 1, os.urandom(4).hex()))


def given_up(order: Order, failure: NodeFailure, why: str) -> Order:
    """Return the order with which launchers on hosts end the job, and stay: an engine would start again what ends."""
    terms = order.autonomy.with_failure(failure) if order.autonomy is not None else None
    return changed(order, command="stop", grace=0.0, why=why, autonomy=terms, pause=None)


class Autonomy:
    """Begins the next generation, or ends the job, after this node has failed.

    `supervised` returns whether a supervisor decides at a time; None where there never is one, so that launchers which
    end the job end too. `may_move` returns whether the node can go elsewhere once its launcher has ended, as in an allocation.
    """

    def __init__(
        self,
        launch: Launch,
        report: Report,
        session: OrderKeeper,
        supervised: Optional[Callable[[float], bool]],
    ) -> None:
        self.launch, self.report, self.session, self.supervised = launch, report, session, supervised
        self.failed: Optional[FailedNode] = None
        self.may_move: Callable[[], bool] = lambda: False
        self.moves = False  # whether the launcher is to end, so that its node may begin the next generation elsewhere

    def go_on(self, order: Optional[Order]) -> None:
        """Do what is due now; `order`: that in which the node runs, None if it runs in no such one any more."""
        now, session = boot_time(), self.session
        if order is None or self.report.state not in ("failed", "fenced"):
            self.failed = None
            return
        if self.failed is None:
            self.failed = FailedNode(self.report.fields, self.launch, now)
        failed = self.failed
        failed.learn(session.headway)
        waits = failed.waits(order, session, self.supervised is not None and self.supervised(now), now)
        final = None if waits else failed.final(order)
        excluded = waits is None and final is None and failed.excluded(order)
        # Where there never is a supervisor, the node begins again, where it is or where it has moved to.
        leaves = excluded and self.supervised is not None
        if waits or leaves:
            session.say_once(waits or "a rule has it leave its host; waits for the supervisor")
        elif excluded and self.may_move():
            self.moves = now - failed.since >= SETTLE
        elif failed.is_due(order, session, final is not None, now):
            failed.proposed = now
            self.propose(order, failed, final)

    def propose(self, order: Order, failed: FailedNode, final: Optional[str]) -> None:
        """Propose the next generation; or, where `final` says why there is none, the end of the job."""
        if final and self.supervised is None:
            self.session.propose(failed.end(order, final), order.id)
        elif final:
            note("the job ends: %s" % final)
            self.session.propose(failed.give_up(order, final), order.id)
        elif order.autonomy:
            self.session.propose(failed.successor(order, order.autonomy), order.id)
