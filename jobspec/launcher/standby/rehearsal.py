"""What a framework's launcher gives the processes that it starts, found out before it has any to start.

An idle launcher has no generation whose processes it could look at. So a copy of the framework's launcher that waits runs
once, with no other node to meet, up to where it starts its processes; none of them begins.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.standby.messages import TrialOutcome
from jobctl.jobspec.launcher.standby.rank import hear, tell
from jobctl.jobspec.launcher.system.processes import PR_SET_PDEATHSIG, prctl

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    from jobctl.jobspec.launcher.standby.messages import Trial
REHEARSED = 60.0  # seconds that it may take


class Rehearsal:
    """Takes note of what is started in the place of the guards of all processes, and ends with the last; starts nothing."""

    def __init__(self, trial: Trial, channel: int) -> None:
        self.trial, self.channel = trial, channel
        self.noted: List[Dict[str, str]] = []

    def start(self, process: Any, args: Any, *rest: Any, **how: Any) -> None:
        """Be the constructor of `subprocess.Popen`."""
        process.pid, process.returncode = os.getpid(), None
        if isinstance(args, (str, bytes)) or [*args] != self.trial.guard:
            self.end(TrialOutcome([], off="the framework's launcher starts processes in a way of its own"))
        self.noted.append(dict(how.get("env") or os.environ))
        if len(self.noted) == self.trial.nproc:
            self.end(TrialOutcome(self.noted, leads_session(how)))

    def end(self, outcome: TrialOutcome) -> None:
        """Tell the outcome, and end this process at once."""
        tell(self.channel, outcome)
        os._exit(0)


def leads_session(how: Dict[str, Any]) -> bool:
    """Say whether `subprocess` is asked for a process that leads a session."""
    return bool(how.get("start_new_session")) or how.get("preexec_fn") is os.setsid


def rehearse(run: Callable[[List[str]], Any], trial: Trial) -> TrialOutcome:
    """Try the framework's launcher, which is imported already."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        rehearsal = Rehearsal(trial, writing)
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.environ.pop("JOBCTL_PROCESS", None)  # so that what is started all the same does nothing
            # Not another class in its place: modules that were imported before may have this one.
            subprocess.Popen.__init__ = lambda process, args, *rest, **how: rehearsal.start(process, args, *rest, **how)  # type: ignore
            run(trial.argv)
        except BaseException as error:
            why = "the framework's launcher fails when it is tried: %s" % type(error).__name__
            rehearsal.end(TrialOutcome([], off=why))
        finally:
            rehearsal.end(TrialOutcome([], off="the framework's launcher ends when it is tried"))
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], REHEARSED)
    said = hear(reading) if ready else None
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if said is None:
        return TrialOutcome([], off="the framework's launcher starts nothing when it is tried")
    return TrialOutcome.from_json(said)
