"""When a failure is a bug that no restart fixes, and how long to wait before a job begins again.

Pure, and one for all: supervisors decide by it, and launchers where no supervisor does. The rules are those of the spec's
`recovery`; docs/recovery.md tells them to users.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Protocol, Sequence, Tuple, TypeVar

    T = TypeVar("T", bound="Tried")

    class Tried(Protocol):
        """How far something came before it failed: its last step, and for how many seconds it ran."""

        @property
        def progress(self) -> Optional[int]: ...
        @property
        def ran(self) -> float: ...

    class Failed(Tried, Protocol):
        """What is known of a failure; see plan.types.Failure."""

        @property
        def rank(self) -> Optional[int]: ...
        @property
        def exit_code(self) -> Optional[int]: ...
        @property
        def kind(self) -> str: ...
        @property
        def tail(self) -> Sequence[str]: ...
        @property
        def alike(self) -> Sequence[Tuple[int, int]]: ...


# How a process ends that a person, the kernel (out of memory) or a machine that shuts down has ended: by SIGHUP, SIGINT,
# SIGKILL or SIGTERM. It says nothing about the program.
FROM_OUTSIDE = (129, 130, 137, 143)
# A run this long without a step counter counts as progress: nobody calls a crash after a minute's training a bug.
PROGRESS_WITHOUT_COUNTER = 60.0  # seconds
FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0  # seconds before a job begins again, without progress in between
# Part of `max_duration`, and seconds, for which it has to be over: a clock that is wrong for a moment ends no job.
OVERDUE_PART, LONGEST_OVERDUE = 0.05, 60.0


def certain_after(limit: float) -> float:
    """Return for how many seconds a job must have been over its time `limit`, by a clock that nobody sets, until it ends."""
    return min(OVERDUE_PART * limit, LONGEST_OVERDUE)


def matches(exit_code: Optional[int], pattern: Optional[str], failure: Failed) -> bool:
    """Say whether a rule is about a failure: it has this exit code (None: any), and a line of its log this pattern."""
    if exit_code is not None and exit_code != failure.exit_code:
        return False
    try:
        return pattern is None or any(re.search(pattern, line) for line in failure.tail)
    except re.error:  # the Python of a launcher may be older than that of jobctl, and know less
        return False


def made_progress(failure: Tried, last: Tried) -> bool:
    """Say whether the generation that ended with `failure` got anywhere since `last`.

    To fail at the very step of the last time is no progress: the way there was only repeated.
    """
    if failure.progress is None:
        return last.progress is None and failure.ran >= PROGRESS_WITHOUT_COUNTER
    return failure.progress != last.progress


def without_progress(failure: T, before: Sequence[T]) -> List[T]:
    """Return the failures before this one since there was progress, the newest first.

    More than the last one: its peers are ended with the first rank that fails, so that two ranks with the same bug
    may take turns at being first.
    """
    found: List[T] = []
    later = failure
    for earlier in reversed(before):
        if made_progress(later, earlier):
            break
        found.append(earlier)
        later = earlier
    return found


def is_a_bug(failure: Failed, last: Failed) -> bool:
    """Say whether a failure repeats an earlier one, on the same rank with the same code.

    Which of several ranks with the same bug is the first to fail is chance, so those of both generations are compared.
    """
    own = all(one.kind in ("exit", "signal") and one.exit_code not in FROM_OUTSIDE for one in (failure, last))
    this, that = (failure.rank, failure.exit_code), (last.rank, last.exit_code)
    return own and (this == that or this in last.alike or that in failure.alike)


def cause_of(mine: Optional[Tuple[str, float]], others: Dict[int, Tuple[str, float]], me: int = -1) -> Optional[int]:
    """Return the node whose failure is the cause of this one's, None if there is none: of each, how it failed, and when.

    A supervisor chooses the same. A launcher that was killed cannot say when, so one that was started again comes first:
    what others say of themselves then is a consequence. Of two at once, that of the lower number is the cause.
    """
    if mine is None:
        return None
    first = min((kind != "launcher", at, node) for node, (kind, at) in [*others.items(), (me, mine)])[2]
    return None if first == me else first


def delay(failure: Failed, before: Sequence[Failed]) -> float:
    """Return how many seconds to wait: none after progress, then twice as long each time without any."""
    fruitless = len(without_progress(failure, before))
    return 0.0 if fruitless == 0 else min(FIRST_DELAY * 2.0 ** (fruitless - 1), LONGEST_DELAY)
