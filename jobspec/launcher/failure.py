"""Why a process of a node, or the node itself, has failed."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import changed, flat, known, record
from jobctl.jobspec.launcher.system.files import TAIL_ALONE, TAIL_CHARACTERS

if TYPE_CHECKING:
    from typing import Optional, Sequence, Tuple, Union

    from jobctl.jobspec.launcher.system.files import Json

# What refuses a program, or the folder that it runs in, until somebody changes that. Anything else may pass: too many
# processes, memory that is short, a disk or a server of files that fails.
FOR_GOOD = (
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.ENOEXEC, errno.ELIBBAD, errno.EINVAL, errno.E2BIG),
)


@record
class Failure:
    """The first failure of a generation on this node, as the report has it."""

    kind: str
    rank: Optional[int]  # None where the node as a whole has failed
    local_rank: Optional[int]
    exit_code: Optional[int]
    log: Optional[str]
    at: float  # seconds since the epoch
    tail: Sequence[str] = ()  # the last lines of that log
    step: Optional[int] = None  # the last step of that process, where it is started again

    def to_json(self) -> Json:
        """Return the report's form."""
        return {**vars(self), "tail": list(self.tail)}

    @classmethod
    def from_json(cls, data: Json) -> Failure:
        """Return the failure that a report has."""
        return cls(**data)

    def abridged(self) -> Failure:
        """Return it with less of the log."""
        return changed(self, tail=[line[:TAIL_CHARACTERS] for line in self.tail[-TAIL_ALONE:]])


@record
class NodeFailure:
    """Why a generation ended, as later orders have it: jobctl's plan.recovery.Failure, as far as launchers need it."""

    generation: int
    at: float
    node: int
    host: str
    rank: Optional[int]
    exit_code: Optional[int]
    kind: str
    progress: Optional[int]  # the node's last step
    ran: float  # seconds that the generation had run
    log: Optional[str]
    tail: Sequence[str]
    reason: Optional[str]
    alike: Sequence[Tuple[int, int]]  # rank and exit code of all processes that ended badly by themselves
    rest: Json  # what jobctl writes besides

    def to_json(self) -> Json:
        """Return the order's form."""
        return {**flat(self), "tail": list(self.tail), "alike": [list(one) for one in self.alike]}

    @classmethod
    def from_json(cls, data: Json) -> NodeFailure:
        """Return the failure that an order has. Raises KeyError, TypeError or ValueError."""
        missing = dict.fromkeys(name for name in cls.__annotations__ if name not in ("at", "generation", "rest"))
        fields = known(cls, {**missing, **data})
        return cls(**{**fields, "tail": fields["tail"] or [], "alike": [(rank, code) for rank, code in data["alike"]]})


class Problem(Exception):
    """Something that keeps a generation from starting."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


def fenced() -> Failure:
    """Return the failure of a node whose processes may not go on."""
    return Failure("fenced", None, None, None, None, time.time())


def problem_of(error: Union[OSError, Problem]) -> Problem:
    """Return what keeps a generation from starting. What files refuse they may grant the next one: a disk has room again."""
    if isinstance(error, Problem):
        return error
    place = " (%s)" % error.filename if error.filename is not None else ""
    message = "its processes cannot be started: %s%s" % (os.strerror(error.errno or 0), place)
    return Problem(message, passing_failure())


def may_pass(error: OSError) -> bool:
    """Say whether a program that cannot be started now may be started by the next generation."""
    return error.errno not in FOR_GOOD


def tells_of_passing(tail: Sequence[str]) -> bool:
    """Say whether the last line, that of a traceback, tells of something that may pass."""
    found = re.match(r"\w*Error: \[Errno (\d+)\]", tail[-1]) if tail else None
    return found is not None and int(found.group(1)) not in FOR_GOOD


def passing_failure() -> Failure:
    """Return the failure of what the next generation may be granted."""
    return Failure("launcher", None, None, None, None, time.time())


def start_failure(code: Optional[int]) -> Failure:
    """Return the failure of something that could not be started."""
    return Failure("start", None, None, code, None, time.time())


def hint_of(tail: Sequence[str]) -> str:
    """Return the remedy for the commonest reasons why a framework's launcher does not start."""
    text = "\n".join(tail)
    if "No module named" in text:
        return ": %s; install it for %s" % (tail[-1].strip(), sys.executable)
    return ""
