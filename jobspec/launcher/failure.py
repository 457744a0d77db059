"""Why a process of a node, or the node itself, has failed."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, Sequence

    from jobctl.jobspec.launcher.files import Json


class Failure:
    """What failed first, for the supervisor and for people."""

    def __init__(
        self,
        kind: str,
        rank: Optional[int],
        local_rank: Optional[int],
        code: Optional[int],
        log: Optional[str],
        at: float,
        tail: Sequence[str] = (),
    ) -> None:
        self.kind, self.rank, self.local_rank, self.exit_code = kind, rank, local_rank, code
        self.log, self.at, self.tail = log, at, list(tail)
        self.step: Optional[int] = None  # the last of that process, where it is started again

    def to_json(self) -> Json:
        """Return the report's form."""
        return dict(vars(self))


class Problem(Exception):
    """Something that keeps a generation from starting."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


def fenced() -> Failure:
    """Return the failure of a node whose processes may not go on."""
    return Failure("fenced", None, None, None, None, time.time())


def start_failure(code: Optional[int], tail: Sequence[str] = ()) -> Failure:
    """Return the failure of something that could not be started."""
    return Failure("start", None, None, code, "launch.log" if tail else None, time.time(), tail)


def hint_of(tail: Sequence[str]) -> str:
    """Return the remedy for the commonest reasons why a framework's launcher does not start."""
    text = "\n".join(tail)
    if "No module named" in text:
        return ": %s; install it for %s" % (tail[-1].strip(), sys.executable)
    return ""
