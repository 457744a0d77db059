"""Sees how the processes of a generation are, and does what follows from that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import Failure, Problem, problem_of
from jobctl.jobspec.launcher.peers.stack_barrier import StackBarrier
from jobctl.jobspec.launcher.run.run import FAILED_GRACE
from jobctl.jobspec.launcher.system.files import note
from jobctl.jobspec.launcher.system.processes import kill_descendants, reap

if TYPE_CHECKING:
    from typing import Optional

    from jobctl.jobspec.launcher.node.agent import Launcher
    from jobctl.jobspec.launcher.run.run import Run


class RunWatcher:
    """Watches the processes of a launcher: starts one again, ends all of them, or reports that they have ended well."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher

    def watch(self) -> Optional[int]:
        """See how the processes are; return an exit code where this launcher is to end."""
        run = self.launcher.current_run
        if run is None:
            reap()
            return None
        try:
            run.go_on()
            changed = run.look()
            self.tell_start(run)
            if self.is_called_hung(run):
                return self.hang(run, time.time())
            if run.until and run.until <= self.launcher.links.done.nodes:
                return self.retire()
            failure = run.verdict.failure()
            if failure is not None and run.verdict.may_start_again(failure):
                self.start_again(run, failure)
                return None
        except (OSError, Problem) as error:
            problem = problem_of(error)
            self.launcher.end_processes(0.0)
            return self.launcher.fail(problem.failure, str(problem))
        if failure is not None:
            return self.fail(run, failure)
        if run.verdict.succeeded():
            return self.succeed(run)
        if run.restarts() > self.launcher.report.fields.process_restarts:
            self.launcher.say(process_restarts=run.restarts(), restart_reason=run.verdict.restart_reason())
        standby = self.launcher.standby
        standby.look(run, run.trains())
        waits, waiting = run.waits(), standby.state()
        told = self.launcher.report.fields
        if changed or (told.reason, told.standby) != (waits, waiting):
            found = run.progress_fields()
            self.launcher.say(processes=run.processes, reason=waits, standby=waiting, **found)
        return None

    def tell_start(self, run: Run) -> None:
        """Report how the processes were started, before what has become of them: they may have ended since the last look."""
        way = run.start_way()
        if way is not None and self.launcher.report.fields.start != way:
            self.launcher.say(start=way)

    def is_called_hung(self, run: Run) -> bool:
        """Return whether another node has called the generation hung and this one ends with it; if not, write its stacks."""
        links = self.launcher.links
        if links.limit is None:
            return False
        run.hang.told, links.limit = links.limit, None
        if self.launcher.goes_on_alone:
            StackBarrier(self.launcher, run).show()
        return not self.launcher.goes_on_alone

    def may_hang(self, limit: float) -> bool:
        """Return whether this node may be part of a hang that another one, which waits `limit` seconds, has detected.

        A node that never wrote a step may be: often rank 0 alone counts.
        """
        run = self.launcher.current_run
        if run is None or not run.children or self.launcher.launch.role != "trainer":
            return False
        return run.hang.at is None or time.monotonic() - run.hang.at > limit / 2

    def start_again(self, run: Run, failure: Failure) -> None:
        """Start a process again while all others go on, once it is not too early."""
        because = run.verdict.reason(failure)
        if run.verdict.is_early(failure, time.time()):
            self.wait_to_start_again(run, because)
            return
        note("%s; it is started again" % because)
        run.start_again(failure)
        times, found = self.launcher.report.fields.process_restarts + 1, run.progress_fields()
        self.launcher.say(process_restarts=times, restart_reason=because, processes=run.processes, **found)

    def fail(self, run: Run, failure: Failure) -> Optional[int]:
        """End the generation on this node."""
        if failure.kind == "hang":
            return self.hang(run, failure.at)
        reason = run.verdict.reason(failure)
        self.launcher.end_processes(FAILED_GRACE)
        return self.launcher.fail(failure, reason)

    def succeed(self, run: Run) -> Optional[int]:
        """Report that all processes have ended with 0."""
        launcher = self.launcher
        launcher.current_run = None
        launcher.standby.drop()
        run.tidy_up()
        kill_descendants(launcher.recovery.teller.pids())
        launcher.rest()
        fields = run.progress_fields()
        launcher.say(state="succeeded", exit_code=0, finished_at=time.time(), processes=run.processes, **fields)
        if launcher.recovery.stays:
            return None
        launcher.links.done.tell(run.serving)
        return 0

    def hang(self, run: Run, at: float) -> Optional[int]:
        """End a generation that hangs since `at`, once all its nodes have written their stacks."""
        failure = Failure("hang", None, None, None, None, at)
        reason = run.verdict.reason(failure)
        StackBarrier(self.launcher, run).hold()
        self.launcher.end_processes(FAILED_GRACE)
        return self.launcher.fail(failure, reason)

    def wait_to_start_again(self, run: Run, because: str) -> None:
        """Report what this launcher waits for."""
        reason = "%s; it is started again %g s after that" % (because, self.launcher.launch.rejoin_after)
        if self.launcher.report.fields.reason != reason:
            self.launcher.say(reason=reason, processes=run.processes, **run.progress_fields())

    def retire(self) -> int:
        """End what serves trainers that are done; how that ends is not what the job is judged by."""
        self.launcher.end_processes(self.launcher.launch.stop_grace, over=True)
        self.launcher.say(state="succeeded", exit_code=0, reason=None, finished_at=time.time())
        return 0
