"""How the processes of a generation are judged: what has failed first, and why."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import Failure, Problem, hint_of, tells_of_passing
from jobctl.jobspec.launcher.order.control import log_of
from jobctl.jobspec.launcher.process.log_files import LogWatcher
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.restart_policy import FROM_OUTSIDE
from jobctl.jobspec.launcher.run.in_place import InPlaceFailures
from jobctl.jobspec.launcher.system.files import last_lines
from jobctl.jobspec.launcher.system.memory import tells_of_oom
from jobctl.jobspec.launcher.system.processes import signal_name, signal_of

if TYPE_CHECKING:
    from typing import List, Optional

    from jobctl.jobspec.launcher.process.record import ProcessRecord
    from jobctl.jobspec.launcher.run.run import Run
RECORDS_WRITTEN = 0.5  # seconds after which a framework launcher's end is believed before its processes' own records


class Verdict:
    """Whether the processes of a run have succeeded or failed; `own_lines`: where in launch.log the words of the framework's launcher begin."""

    def __init__(self, run: Run, own_lines: int) -> None:
        self.run, self.own_lines = run, own_lines
        self.in_place = InPlaceFailures(run.launch.rejoin)
        self.log_watcher = LogWatcher(os.path.join(run.folders.logs, "launch.log"), own_lines, run.launch)

    def may_start_again(self, failure: Failure) -> bool:
        """Say whether a process that has failed is started again while all others go on.

        Not one that fails as it did the last time, without any progress in between: that is a bug.
        """
        limit = None if self.run.launch.regroups else self.run.launch.rejoin
        if limit is None or failure.local_rank is None or failure.kind not in ("exit", "signal"):
            return False
        earlier, within = self.run.again.get(failure.local_rank, []), self.run.launch.rejoin_within
        every = [one for failures in self.run.again.values() for one in failures]
        if len([one for one in every if within is None or failure.at - one.at <= within]) >= limit:
            failure.kind = "exhausted"
            return False
        same = bool(earlier) and earlier[-1].exit_code == failure.exit_code and failure.exit_code not in FROM_OUTSIDE
        return not (same and earlier[-1].step == self.run.hang.steps_of.get(failure.local_rank))

    def is_early(self, failure: Failure, now: float) -> bool:
        """Say whether it is too early to start the process of that failure again: others have to have given it up.

        A clock that was set back keeps nobody waiting for long.
        """
        return abs(now - failure.at) < self.run.launch.rejoin_after

    def succeeded(self) -> bool:
        """Say whether all children have ended with 0."""
        codes = [self.run.ended.get(child, (None, 0.0))[0] for child in self.run.children]
        return bool(codes) and all(code == 0 for code in codes)

    def failure(self) -> Optional[Failure]:
        """Return what failed first, None while nothing has. Raises OSError, Problem."""
        failed = [p for p in self.run.processes if p.exit_code]
        first = self.process_failure(min(failed, key=lambda p: p.finished_at or 0.0)) if failed else None
        regroups = self.run.launch.regroups
        gives_up = regroups and self.in_place.look(self.run.processes, self.run.hang.progress)
        if first is not None and regroups:
            codes = [self.run.ended[child][0] for child in self.run.children if child in self.run.ended]
            return first if gives_up or any(codes) else self.lost()
        if first is not None:
            return first
        ended = [pair for child in self.run.children for pair in [self.run.ended.get(child)] if pair and pair[0] != 0]
        if ended and abs(time.time() - ended[0][1]) > RECORDS_WRITTEN:  # clocks are set
            return self.launcher_failure(*ended[0])
        if self.run.hang.hangs(time.monotonic()):
            return Failure("hang", None, None, None, None, time.time())
        return self.lost()

    def restart_reason(self) -> str:
        """Say why the framework's launcher has started processes again: what failed first, the last time that it did.

        The guards of the new processes know how their predecessors ended. The time between may be too short to see it.
        """
        newest = max((p.starts for p in self.run.processes), default=1)
        endings = [p.guard_before for p in self.run.processes if p.starts == newest]
        failed = [ending for ending in endings if ending and ending.exit_code]
        if not failed:
            return "the framework's launcher ended its processes"
        first = min(failed, key=lambda ending: ending.finished_at)
        kind = "signal" if signal_of(first.exit_code) else "exit"
        return self.reason(Failure(kind, first.rank, None, first.exit_code, None, first.finished_at))

    def lost(self) -> Optional[Failure]:
        """Return that the framework's launcher cannot go on although it lives, None while it can."""
        line = self.log_watcher.look(time.monotonic())
        return Failure("lost", None, None, None, "launch.log", time.time(), [line]) if line else None

    def process_failure(self, process: ProcessRecord) -> Failure:
        """Return the failure of one process, with its last words (or the framework launcher's, if it had none)."""
        log = log_of(self.run.launch.log_name, process.local_rank)
        tail = last_lines(os.path.join(self.run.folders.logs, log))
        if not tail:
            log, tail = "launch.log", self.launcher_lines()
        kind = "start" if process.guard_why else "signal" if process.signal else "exit"
        code, at = process.exit_code, process.finished_at or time.time()
        if process.guard_passes:
            kind, code = "launcher", None
        return Failure(kind, process.rank, process.local_rank, code, log, at, tail)

    def launcher_failure(self, code: int, at: float) -> Failure:
        """Return the failure of the framework's launcher: before its processes began, or of its own.

        Raises OSError if no process has begun, and none could write its files: the disk is the cause then, and not the program.
        Raises Problem where its last words tell of another cause that may pass: it finds no room for processes, for example.
        """
        tail = self.launcher_lines()
        began = any(p.pid for p in self.run.processes)
        if not began:
            self.run.folders.try_out()
        kind = "signal" if signal_of(code) else "exit" if began else "start"
        found = Failure(kind, None, None, code, "launch.log", at, tail)
        if kind == "start" and tells_of_passing(tail):
            raise Problem("%s: %s" % (self.reason(found), tail[-1]), changed(found, kind="launcher", exit_code=None))
        return found

    def launcher_lines(self) -> List[str]:
        """Return the last lines of the framework's launcher."""
        return last_lines(os.path.join(self.run.folders.logs, "launch.log"), self.own_lines)

    def reason(self, failure: Failure) -> str:
        """Say in words what failed."""
        if failure.kind == "hang":
            return "no progress for %.0f s (hang_timeout)" % min(self.run.hang.limit(), self.run.hang.told)
        if failure.kind == "lost":
            return "the framework's launcher %s: %s" % (self.log_watcher.why, failure.tail[0])
        whys = [p.guard_why for p in self.run.processes if p.guard_why]
        if failure.kind in ("start", "launcher") and whys:
            return str(whys[0])
        if failure.kind == "start":
            return "%s ended with code %s before any process began%s" % (
                " ".join(self.run.environment.argv(self.run.launch.start)[:3]) or "the guard of a process",
                failure.exit_code,
                hint_of(failure.tail),
            )
        kind = "rank" if self.run.launch.role == "trainer" else self.run.launch.role
        who = "%s %d" % (kind, failure.rank) if failure.rank is not None else "the framework's launcher"
        code = failure.exit_code or 0
        if failure.kind == "exhausted":
            return "%s ended with code %s, and all %s restarts are used up" % (who, code, self.run.launch.rejoin)
        why = ": out of memory" if tells_of_oom(failure.tail) else ""
        if failure.kind == "signal":
            return "%s was killed by %s%s" % (who, signal_name(code - 128), why)
        return "%s exited with code %s%s" % (who, code, why)
