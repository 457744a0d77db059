"""How often processes fail that the framework's launcher starts again by itself."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.restart_policy import without_progress

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from jobctl.jobspec.launcher.process.record import Ending, ProcessRecord
SIGTERMED = 128 + signal.SIGTERM  # how a process ends that the framework's launcher has ended


@record
class FailedStart:
    """A start of the processes of this node that has failed: how far it came, and for how many seconds it ran."""

    number: int
    progress: Optional[int]
    ran: float


class InPlaceFailures:
    """The starts that have failed by themselves, and whether these are too many.

    The framework's launcher also starts processes again because other nodes come and leave: then it ends them first. What
    loses its peers before that fails by itself. So failures count only in a row, without any progress in between.
    """

    def __init__(self, limit: Optional[int]) -> None:
        self.limit = limit
        self.starts: List[FailedStart] = []

    def look(self, processes: Sequence[ProcessRecord], progress: Optional[int]) -> bool:
        """Take note of what has failed; say whether it is the present start, and one too many.

        The time between an end and the next start may be too short to see it: then the next process knows.
        """
        first: Dict[int, Ending] = {}
        for process in processes:
            now = [(process.starts, process.ending())] if process.exit_code else []
            before = [(process.starts - 1, process.guard_before)] if process.guard_before else []
            for number, ending in (*now, *before):
                if ending.exit_code and (number not in first or ending.finished_at < first[number].finished_at):
                    first[number] = ending
        known = self.starts[-1].number if self.starts else 0
        for number, ending in sorted(first.items()):
            if number > known and ending.exit_code != SIGTERMED:
                self.starts.append(FailedStart(number, progress, ending.ran))
        present = max((process.starts for process in processes), default=0)
        if self.limit is None or not self.starts or self.starts[-1].number != present:
            return False
        return len(without_progress(self.starts[-1], self.starts[:-1])) >= self.limit
