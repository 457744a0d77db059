"""What a launcher does about failures where no supervisor handles them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.etcd.session_messages import NodeCourse
from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.peers.lease import TICK
from jobctl.jobspec.launcher.peers.orders import PeerOrders
from jobctl.jobspec.launcher.recovery.autonomy import SETTLE, Autonomy
from jobctl.jobspec.launcher.recovery.etcd_replacement import EtcdReplacement
from jobctl.jobspec.launcher.recovery.going_back import GoingBack
from jobctl.jobspec.launcher.recovery.replacement import Replacement
from jobctl.jobspec.launcher.report.report import STARTED_AGAIN
from jobctl.jobspec.launcher.report.stragglers import slow_processes
from jobctl.jobspec.launcher.system.processes import EXIT_MOVES, boot_time
from jobctl.jobspec.launcher.telling.host_teller import HostTeller

if TYPE_CHECKING:
    from typing import Callable, Optional, Tuple

    from jobctl.jobspec.launcher.etcd.session_lease import LeaseSession
    from jobctl.jobspec.launcher.node.agent import Launcher
    from jobctl.jobspec.launcher.order.order import Member, Order
    from jobctl.jobspec.launcher.recovery.autonomy import OrderKeeper
    from jobctl.jobspec.launcher.recovery.replacement import NodeReplacement


def started_again() -> Failure:
    """Return the failure of a node whose launcher has ended, and was started again."""
    return Failure("launcher", None, None, None, None, time.time())


class SelfRecovery:
    """Acts for a launcher on what launchers agree on. `supervised`: see Autonomy."""

    def __init__(self, launcher: Launcher, keeper: OrderKeeper, supervised: Optional[Callable[[float], bool]]) -> None:
        self.launcher = launcher
        self.autonomy = Autonomy(launcher.launch, launcher.report, keeper, supervised)
        # The launcher that follows knows how its node has failed, and has run nothing: it begins the next generation.
        self.autonomy.may_move = lambda: supervised is None and launcher.own is not None and launcher.began > 0
        self.replacement: Optional[NodeReplacement] = Replacement(keeper) if isinstance(keeper, PeerOrders) else None
        if launcher.session is not None and supervised is not None:
            launcher.session.reached = launcher.report.reached
            self.replacement = EtcdReplacement(launcher.session, launcher.launch, supervised)
        self.going_back = GoingBack(keeper) if isinstance(keeper, PeerOrders) else None
        keeper.own = lambda: launcher.report.headway(launcher.orders.order, time.time())
        keeper.failed = lambda: self.failed
        self.teller = HostTeller(launcher)
        self.judged = 0.0  # when it was looked last which nodes make the others wait

    @property
    def failed(self) -> Optional[Tuple[str, float]]:
        """How this node has failed in the newest order, and when; None if it has not."""
        report, order = self.launcher.report, self.launcher.orders.order
        found = report.fields.failure
        ended = report.state in ("failed", "fenced") and order is not None and report.is_of(order)
        return (found.kind, found.at) if ended and found is not None else None

    @property
    def stays(self) -> bool:
        """Whether this launcher stays once its node has ended well, until all trainers have.

        Nodes that train on need its answers for their leases, and all begin again if one of them fails. With etcd they
        need no answers.
        """
        launcher, order = self.launcher, self.launcher.orders.order
        if launcher.session is None:
            return True
        return not launcher.goes_on_alone and order is not None and len(order.of_role("trainer")) == len(order.members)

    def settles(self, now: float) -> bool:
        """Say whether this node has failed so recently that the cause, and how far the others are, is not known yet."""
        failed = self.autonomy.failed
        return failed is not None and now - failed.since < SETTLE

    def tell_course(self, order: Order) -> None:
        """Have the others hear how this node does, where etcd tells them."""
        session = self.launcher.session
        if session is None or not self.launcher.report.is_of(order):
            return
        course = NodeCourse(order.id, self.failed, session.own(), self.launcher.report.state == "succeeded")
        if course.failed is not None or course.done or session.courses:
            session.tell_end(course)

    def act(self) -> Optional[int]:
        """Do what is due; return an exit code when it is time to go."""
        launcher, report = self.launcher, self.launcher.report
        newest = launcher.orders.order
        if newest is not None:
            self.tell_course(newest)
        elif launcher.session is not None and report.state == "waiting" and launcher.session.waits_to_know:
            self.say_waiting(launcher.lease.waits())
        lease = launcher.links.majority
        if lease is not None and lease.validity.over and launcher.current_run is None:
            self.ask_again(newest, launcher.orders.member())
        self.remember(newest, launcher.orders.member())
        self.replace_lost()
        self.name_stragglers(boot_time())
        self.go_back(newest)
        own = newest is not None and report.is_of(newest) and not newest.is_paused
        self.autonomy.go_on(newest if own else None)
        if self.autonomy.moves:
            launcher.standby.drop()
            return EXIT_MOVES
        self.teller.look(boot_time())
        if report.state != "succeeded":
            return None
        if launcher.session is not None:
            return self.end_with_session(launcher.session)
        return self.end_with_others(newest) if newest is not None else None

    def say_waiting(self, reason: str) -> None:
        """Say in the report what this launcher waits for."""
        if self.launcher.report.fields.reason != reason:
            self.launcher.say(reason=reason)

    def leave(self) -> None:
        """Let the others hear how this launcher ends."""
        if self.launcher.session is not None:
            self.launcher.session.leave()
        else:
            self.launcher.links.done.linger()

    def end_with_others(self, order: Order) -> Optional[int]:
        """End once all trainers have ended well, as launchers say; on hosts, one that was started again after its node stays.

        Its engine would start that again for ever.
        """
        launcher = self.launcher
        if not launcher.links.done.are_all(order) or (launcher.links.incarnations is None and not launcher.began):
            return None
        self.teller.see_off(order)
        return 0

    def end_with_session(self, session: LeaseSession) -> Optional[int]:
        """The same where etcd says how nodes have ended."""
        if not session.all_done(boot_time()):
            return None
        if self.launcher.began:
            return 0
        if session.at is not None:
            session.release()
        return None

    def go_back(self, order: Optional[Order]) -> None:
        """Go on with what a command has stopped for a change that does not come, or say why not."""
        orders, member = self.launcher.peer_orders, self.launcher.orders.member()
        if self.going_back is None or orders is None or order is None or member is None:
            return
        why = self.going_back.look(boot_time())
        if why is not None:
            orders.say_once(why)

    def replace_lost(self) -> None:
        """Give lost nodes to hot spares, or say why not."""
        launcher, orders = self.launcher, self.launcher.peer_orders
        if self.replacement is None:
            return
        order = launcher.orders.order if orders is None else orders.order
        why = self.replacement.look(order, launcher.links.done.nodes, boot_time())
        if why is not None:
            self.replacement.keeper.say_once(why)

    def name_stragglers(self, now: float) -> None:
        """Write down which nodes make the others wait, where no supervisor does."""
        launcher, orders = self.launcher, self.launcher.peer_orders
        run, order = launcher.current_run, orders.order if orders is not None else None
        if run is None or orders is None or order is None or now < self.judged + TICK or orders.lease.supervised(now):
            return
        self.judged = now
        told = {orders.lease.me: run.paces_of_ranks()}
        for member in order.of_role(launcher.launch.role):
            if member.node not in told:
                told[member.node] = (orders.heard[member.node].paces or {}) if orders.is_there(member.node) else {}
        if any(launcher.story.names_slow(order, slow) for slow in slow_processes(told)):  # the next one a second later
            launcher.say()

    def remember(self, order: Optional[Order], member: Optional[Member]) -> None:
        """Count as failed in an order in which an earlier launcher of this node may have begun, as the others say.

        So does a node that has not begun where another one has ended well, and no launcher of that is left that could say
        that it has met this one. Those whose framework's launchers agree by themselves on who takes part let the node join instead.
        """
        launcher, known, orders = self.launcher, self.launcher.links.incarnations, self.launcher.peer_orders
        waits = launcher.pending is not None and order is not None and member is not None
        if known is None or order is None or orders is None or not waits or known.joined == known.age:
            return
        ended = sorted(node for node in launcher.links.done.nodes if orders.is_replaced(node))
        if not known.forgot and not ended:
            return
        if launcher.launch.regroups:
            known.joined = known.age
            return
        launcher.pending = None
        launcher.say(generation=order.number, epoch=order.began, progress=None, started_at=None)
        reason = (
            STARTED_AGAIN if known.forgot else "node %d, which has ended well, cannot say that it is met" % ended[0]
        )
        launcher.fail(started_again(), reason)

    def awaited(self, order: Order) -> Optional[str]:
        """Return what this node waits for before it begins in an order, None for nothing."""
        launcher, orders = self.launcher, self.launcher.peer_orders
        others = orders.awaited(order) if orders is not None else None
        by_name = orders is not None and orders.incarnations is not None and others is not None
        return others if by_name or launcher.lease.held(boot_time()) else launcher.lease.waits()

    def ask(self, order: Order, member: Member) -> None:
        """Ask for a lease for an order: the first one, or another one once that is over and nothing runs.

        A node may have one again as long as it may run here by the order. If it has moved, most of the launchers that
        could give it one have entered the order that moved it, and answer no older one (docs/protocol.md).
        """
        launcher, voters = self.launcher, [m.node for m in order.of_role("trainer")]
        launcher.lease.begin(order.lease, order.nodes, member.node, order.host_timeout, boot_time(), voters)
        launcher.links.meet(order)

    def release(self) -> None:
        """Let etcd give the lease of a node that has its place on another host now to the launcher there."""
        if self.launcher.session is not None:
            self.launcher.session.release()

    def ask_again(self, order: Optional[Order], member: Optional[Member]) -> None:
        """Ask for another lease, for the next generation of launchers; in the last one nothing begins again."""
        follows = order is not None and (order.command == "run" or order.is_paused)
        if order is not None and member is not None and order.base is not None and follows:
            self.ask(order, member)

    def resume(self, order: Order, member: Member) -> None:
        """Take part again in a generation that the launcher before this one has begun: what that one ran is no more."""
        launcher, state = self.launcher, self.launcher.report.state
        launcher.entered = order
        if launcher.links.majority is not None and launcher.lease.generation != order.lease:
            self.ask(order, member)
        if state in ("waiting", "stopped") and launcher.pending is None:
            launcher.fail(started_again(), STARTED_AGAIN)
        else:
            launcher.say()

    def join(self, order: Order, member: Member) -> None:
        """Begin again in an order that goes on without this node, although the others have met another launcher of it."""
        known = self.launcher.links.incarnations
        if known is not None:
            known.joined = list(order.age)
        self.launcher.expect(order, member)

    def go_on_in(self, order: Order, member: Member) -> None:
        """Begin a generation of launchers with the lease that there is, or, in a new launcher, with another one.

        A new launcher takes part again only where the others can go on without its node meanwhile.
        """
        launcher, joins = self.launcher, self.launcher.rejoins
        anew = launcher.lease.generation != order.lease  # that lease was another launcher's, and so was what it ran
        if anew:
            launcher.say(generation=order.number, progress=None, started_at=None)
            self.ask(order, member)
        if anew and not joins:
            launcher.fail(started_again(), STARTED_AGAIN)
            return
        launcher.pending = order, member
        launcher.links.begin_generation()
        launcher.say(state="waiting", reason=None)

    def explain(self, text: str) -> None:
        """Say in the report what a failed node waits for, and write it down."""
        launcher, failed, orders = self.launcher, self.autonomy.failed, self.launcher.peer_orders
        gone = sorted(orders.gone) if orders is not None else []
        launcher.story.waits(launcher.orders.order, text, gone)
        if failed is not None:
            launcher.say(reason="%s; %s" % (failed.failure.reason, text))
        elif orders is not None and orders.order is not None and orders.order.is_paused:
            launcher.say(reason=text)
        else:
            launcher.say()
