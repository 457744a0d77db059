"""The launcher proper: it follows the control file, starts and ends processes, and writes the report."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.etcd.session_lease import EtcdLease
from jobctl.jobspec.launcher.failure import Failure, Problem, fenced, problem_of
from jobctl.jobspec.launcher.node.idle_standby import IdleStandby
from jobctl.jobspec.launcher.node.run_watcher import RunWatcher
from jobctl.jobspec.launcher.order.launch import grace_in
from jobctl.jobspec.launcher.peers.incarnations import Incarnations
from jobctl.jobspec.launcher.peers.lease import MajorityLease
from jobctl.jobspec.launcher.peers.orders import PeerOrders
from jobctl.jobspec.launcher.peers.peers import PeerLinks
from jobctl.jobspec.launcher.peers.stack_barrier import StackBarrier
from jobctl.jobspec.launcher.process.guard import load_for_later
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.recovery.control_file import ControlFile
from jobctl.jobspec.launcher.recovery.self_recovery import SelfRecovery
from jobctl.jobspec.launcher.report.report import Report
from jobctl.jobspec.launcher.report.story import Story
from jobctl.jobspec.launcher.run.run import Run
from jobctl.jobspec.launcher.run.scratch import remove_shared
from jobctl.jobspec.launcher.run.setup import Setup
from jobctl.jobspec.launcher.standby.standby import Standby
from jobctl.jobspec.launcher.system.bytecode import keep_compiled
from jobctl.jobspec.launcher.system.deadline import Deadline
from jobctl.jobspec.launcher.system.files import note
from jobctl.jobspec.launcher.system.processes import (
    EXIT_MOVES,
    PRCTL,
    SIGNALS,
    adopt_orphans,
    boot_time,
    handle_signals,
    kill_descendants,
)

if TYPE_CHECKING:
    import argparse
    from typing import Any, Optional, Tuple, Unpack

    from jobctl.jobspec.launcher.etcd.session_lease import LeaseSession
    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.order.order import Member, Order
    from jobctl.jobspec.launcher.peers.lease import Lease
    from jobctl.jobspec.launcher.report.node_report import ReportChanges
NODE_DIRECTORY = "/jobctl/node"  # of a launcher in a container
GIVEN = -1  # what an idle launcher ends with once a node is given to it, which is no exit code
POLL = 0.1  # seconds between two looks at the control file and the processes
EXPECTANT = ("waiting", "failed", "fenced")  # states in which it looks oftener: the next generation is as good as there
IDLE = ("waiting", "stopped")  # states in which nothing runs, and nothing has failed
STARTUP_SECONDS = 0.5  # seconds after which processes have had the time to begin
EXPECTANT_SECONDS = 20.0  # seconds after which it is not any more


class Launcher:
    """Follows the control file: begins, ends and reports generations, one at a time."""

    def __init__(
        self,
        launch: Launch,
        options: argparse.Namespace,
        deadline: Deadline,
        session: Optional[LeaseSession] = None,
    ) -> None:
        self.deadline = deadline
        self.dir, self.own, self.secrets, self.launch = options.dir, options.own, options.secrets, launch
        self.program = keep_compiled(self.dir) if launch.start else ""
        self.guard = os.getppid()
        # With etcd, another process keeps the lease and knows the generation.
        self.session = session
        etcd = EtcdLease(self.session) if self.session is not None else None
        watched = launch.peer_port is None  # in clusters and allocations there never is a supervisor
        majority = MajorityLease(watched)
        self.lease: Lease = etcd or majority
        incarnations = None if watched else Incarnations(options.address, together=not self.goes_on_alone)
        agreed = PeerOrders(majority, lambda text: self.recovery.explain(text), incarnations)
        self.peer_orders = agreed if self.session is None else None
        self.links = PeerLinks(self, os.path.join(os.path.dirname(options.control), "feeds"), options.names)
        self.standby = Standby(launch)
        self.idle = IdleStandby(self)
        self.report = Report(launch, self.dir, self.guard, self.links.addresses.port, self.standby.state())
        self.story = Story(launch, self.dir, None if watched else options.own)
        agreed.restore(self.report.fields.order, self.report.fields.left)
        self.orders = ControlFile(options.control, launch, session, self.peer_orders, lambda why: self.say(reason=why))
        supervised = etcd.supervised if etcd is not None else majority.supervised if watched else None
        self.recovery = SelfRecovery(self, self.session or agreed, supervised)
        self.setup = Setup(self, in_container=self.dir == NODE_DIRECTORY or bool(launch.spare))
        self.watcher = RunWatcher(self)
        self.signal: Optional[int] = None
        self.pending: Optional[Tuple[Order, Member]] = None  # a generation that begins once there is a lease for it
        self.entered: Optional[Order] = None  # the newest order that this launcher has had a part in, or waits to
        self.current_run: Optional[Run] = None
        self.busy = False  # whether there may be processes
        self.began = 0
        self.loaded = False

    @property
    def rejoins(self) -> bool:
        """Whether this node joins a generation again that goes on without it, as its launcher has been restarted."""
        return self.report.may_join and self.report.state in IDLE and self.pending is None

    def run(self) -> int:
        """Serve until told to finish, or until the node's work is done; return the exit code."""
        adopt_orphans()
        handle_signals(self.on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if PRCTL is None:
            note("no ctypes here: orphans of a killed launcher are not ended by the kernel")
        self.say()
        while True:
            code = self.turn()
            if code is not None:
                if code not in (GIVEN, EXIT_MOVES):
                    self.recovery.leave()
                return code
            if not self.loaded and self.report.state == "running" and boot_time() - self.report.since > STARTUP_SECONDS:
                load_for_later()
                self.loaded = True
            expectant = self.report.state in EXPECTANT and boot_time() - self.report.since < EXPECTANT_SECONDS
            self.pause(POLL / 5 if self.pending is not None or expectant else POLL)

    def pause(self, seconds: float) -> bool:
        """Sleep, but hear and answer; whatever waits here waits so, or the others would take this launcher for lost.

        Says whether processes may still run: what is fenced may not, unless a node runner, with a lease of its own, ends it.
        """
        until = time.monotonic() + seconds
        while True:
            self.be_here()
            self.links.attend()
            left = until - time.monotonic()
            if left <= 0:
                return self.lease.held(boot_time()) or (self.signal is not None and self.own is not None)
            self.links.wait(min(left, POLL))

    def on_signal(self, number: int, frame: Any) -> None:
        """Remember it; the loop acts on it."""
        self.signal = number

    def turn(self) -> Optional[int]:
        """Look once at everything; return an exit code when it is time to go."""
        if os.getppid() != self.guard or (self.session is not None and self.session.lost) or self.links.addresses.deaf:
            kill_descendants()
            return 137
        if (superseded := self.report.superseded(runs=self.current_run is not None)) is not None:
            note(superseded)
            kill_descendants()
            return 137
        if self.signal is not None:
            return self.stopped_by_signal(self.signal)
        if self.current_run is not None and not self.lease.held(boot_time()):
            self.fence()
        if self.orders.read():
            self.report.fields.order = self.orders.agreed
            code = self.obey()
            if code is not None:
                return code
        if self.report.is_late():
            self.say()
        self.begin_pending()
        self.idle.look()
        code = self.watcher.watch()
        return self.recovery.act() if code is None else code

    def begin_pending(self) -> None:
        """Begin the generation that waits, once there is a lease, and all members if launchers have begun it."""
        if self.pending is None:
            return
        order, member = self.pending
        waits = self.recovery.awaited(order)
        if waits is None:
            self.pending = None
            self.begin(order, member)
        elif self.report.fields.reason != waits:
            self.say(reason=waits)

    def stopped_by_signal(self, number: int) -> int:
        """End this node, as the user or the engine wants by SIGTERM or a similar signal."""
        self.standby.drop()
        self.end_processes(grace_in(self.own, self.launch), number)
        if self.report.state in ("waiting", "setup", "running"):
            self.say(state="stopped", reason="stopped by %s" % signal.Signals(number).name, finished_at=time.time())
        return 128 + number

    # What is to be done.

    def obey(self) -> Optional[int]:
        """Do what the control file says now."""
        order, member = self.orders.order, self.orders.member()
        if order is None:
            return None
        if order.command == "finish":
            return self.finish(order.grace)
        if order.command == "stop" or member is None:
            self.stop(order.grace, member is None)
        elif self.launch.regroups and self.current_run is not None and order.began == self.report.fields.epoch:
            self.adopt(order, member)
        elif self.is_new(order):
            if (run := self.current_run) is not None and run.stands_still() and self.links.level < StackBarrier.HELD:
                run.write_stacks(self.pause)  # another node called it a hang, and could not tell this one
            self.end_processes(order.grace)
            self.expect(order, member)
        elif self.report.is_of(order) and self.current_run is None and self.rejoins:
            self.recovery.join(order, member)
        elif self.report.is_of(order) and self.current_run is None:
            self.recovery.resume(order, member)
        return None

    def is_new(self, order: Order) -> bool:
        """Return whether this node has had no part in `order` yet, the newest that there is, whatever its number.

        Two may have begun one of a number, and a command may not know how far launchers have come.
        """
        entered = self.entered
        return order.age > entered.age if entered is not None else self.report.has_not_begun(order)

    def expect(self, order: Order, member: Member) -> None:
        """Begin a generation as soon as somebody has answered a tick that was sent for it."""
        self.entered, self.idle.expected = order, None
        if order.is_of_launchers and (self.lease.generation == order.lease or self.report.has_begun_base(order)):
            self.recovery.go_on_in(order, member)
            return
        self.pending = order, member
        self.recovery.ask(order, member)
        self.say(state="waiting", reason=self.lease.waits())

    def adopt(self, order: Order, member: Member) -> None:
        """Go on in a new generation: the frameworks' launchers agree by themselves on who takes part."""
        self.entered = order
        self.lease.move_on(order.id, order.nodes, member.node, boot_time())
        self.links.meet(order)
        self.say(generation=order.number)

    def fence(self) -> None:
        """End the processes at once: a supervisor that does not hear this launcher may start its node elsewhere."""
        self.standby.drop()
        self.end_processes(0.0)
        self.fail(fenced(), self.lease.why_over())

    def finish(self, grace: float) -> int:
        """End for good, with the code of what ran."""
        busy = self.current_run is not None or self.pending is not None
        self.standby.drop()
        self.end_processes(grace, over=True)
        order = self.orders.order
        if self.launch.shares_folder and order is not None:
            remove_shared(order, self.dir)  # of a generation that has failed here, or whose launcher was killed
        if busy or self.report.state in ("waiting", "setup"):
            self.say(state="stopped", reason="told to finish", finished_at=time.time())
        if busy and self.launch.until:
            self.say(state="succeeded", exit_code=0, reason=None)  # it serves others, and they need it no more
            return 0
        failure = self.report.fields.failure
        if self.session is not None:
            return 0  # engines start what failed again where an earlier version made the container, but this is the end
        if order is not None and order.exit_code is not None:
            note("the job ends: %s" % order.why)
            return order.exit_code
        return (failure.exit_code or 1) if failure is not None else 0

    def stop(self, grace: float, excluded: bool) -> None:
        """End the processes and stay."""
        busy, order = self.current_run is not None, self.orders.order
        if not self.idle.joins(order) and (excluded or order is None or not order.is_paused):  # the next one follows
            self.standby.drop()
        self.end_processes(grace, over=True)
        if excluded:
            self.recovery.release()
            self.say(state="waiting", reason="not part of this generation", processes=[], failure=None)
            self.idle.join(order)
        elif busy or self.report.state in ("waiting", "setup"):
            self.say(state="stopped", reason=order.why_stopped if order else None, finished_at=time.time())
        else:
            self.say()

    # A generation.

    def begin(self, order: Order, member: Member) -> None:
        """Start the processes of a generation."""
        if self.peer_orders is not None:
            order = self.peer_orders.located(order)
            member = order.member(member.node) or member
        self.busy = True
        self.be_here()
        self.began += 1
        self.say(**self.report.of_new_generation(order, self.began - 1))
        try:
            if self.setup.run():  # else an order has ended it, which the next turn reads
                if self.program and not os.path.exists(self.program):  # somebody has removed the job's files under it
                    self.program = keep_compiled(self.dir)
                self.current_run = Run(self, order, member)
                self.say(state="running")
        except (OSError, Problem) as error:
            problem = problem_of(error)
            self.end_processes(0.0)
            self.fail(problem.failure, str(problem))

    def end_processes(self, grace: float, number: int = signal.SIGTERM, over: bool = False) -> None:
        """End whatever runs: a signal, `grace` seconds, SIGKILL. Also what lost its parents.

        `over`: the generation goes on without this node no more.
        """
        run, self.current_run, self.pending = self.current_run, None, None
        if run is not None:
            run.end(grace, number, self.pause)
            run.look()
            self.standby.heed(run)
            if over or not self.launch.rejoin_after:
                run.tidy_up()  # else others may go on without this node, with what lies in the folder that all share
            fields = self.report.fields
            fields.processes, fields.progress, fields.progress_at = run.processes, run.hang.progress, run.progress_at
        # What holds the memory of devices takes seconds to end: the guard would take this launcher for one that hangs.
        kill_descendants([*self.standby.pids(), *self.recovery.teller.pids()], self.be_here)
        self.rest()

    def be_here(self) -> None:
        """Tell the guard until when processes may run; until then this launcher ends them itself."""
        end = self.lease.end() if self.busy else 0.0
        self.deadline.put(max(end, boot_time() + Deadline.LATE) if end else 0.0)

    def rest(self) -> None:
        """Nothing runs any more that could have to be ended in time."""
        self.busy = False
        self.deadline.put(0.0)

    # Watching.

    @property
    def goes_on_alone(self) -> bool:
        """Whether this node may go on where another one has failed."""
        return self.launch.regroups or self.launch.rejoin is not None

    def fail(self, failure: "Failure", reason: str) -> Optional[int]:
        """Report a failure and wait for the next generation, or exit if nobody will begin one."""
        code = failure.exit_code if failure.exit_code is not None else 1
        note("%s (generation %d)" % (reason, self.report.fields.generation))
        self.say(
            state="fenced" if failure.kind == "fenced" else "failed",
            exit_code=failure.exit_code,
            reason=reason,
            finished_at=time.time(),
            failure=failure,
        )
        # What starts this launcher again makes it join the others.
        ends = self.launch.regroups and failure.kind != "fenced"
        order = self.orders.order
        return code if ends or (order is not None and order.on_failure == "exit") else None

    def say(self, **changes: Unpack[ReportChanges]) -> None:
        """Report a change, and write down what is new in it."""
        changes.setdefault("standby", self.standby.state())
        changes["events"] = self.story.look(changed(self.report.fields, **changes), self.orders.order)
        if self.report.write(**changes):
            self.links.report_changed()
