"""What the launcher tells the guard of a process, in the variable JOBCTL_PROCESS where a framework starts the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import record

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

    from jobctl.jobspec.launcher.system.files import Json


@record
class ProcessTask:
    """What one process of a generation runs, and where it leaves what it writes."""

    command: List[str]
    name: str  # of its log, without the local rank
    ranks: Sequence[str]  # the variables that have its rank and its local rank
    logs: str  # folders …
    progress: str
    records: str
    forward_to: Optional[str]  # the file to which the guard copies the output, None if it does not
    elsewhere: Optional[Sequence[str]]  # variable and value of a process that another node runs

    def to_json(self) -> Json:
        """Return its JSON form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Json) -> ProcessTask:
        """Return the task that `to_json` has written."""
        return cls(**data)
