"""The lease without which a node does not train, and the one that most of the launchers give each other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Optional, Protocol, Sequence, Tuple

    class Lease(Protocol):
        """The right to run processes in a generation. Times are those of `boot_time`.

        `MajorityLease` has it from the supervisor or most of the launchers, `EtcdLease` from etcd. Once over, none comes
        back before the next generation: the supervisor, or the other launchers, may have started the node elsewhere by
        then. See docs/recovery.md.
        """

        generation: Optional[str]  # the id of the generation's rendezvous, None before the first one
        me: int
        ticks: Ticks

        def begin(
            self,
            generation: Optional[str],
            nodes: Sequence[int],
            me: int,
            timeout: float,
            now: float,
            voters: Optional[Sequence[int]] = None,
        ) -> None:
            """Ask for a lease for a new generation of `nodes`. Only the answers of `voters` count (None: of all)."""

        def move_on(self, generation: str, nodes: Sequence[int], me: int, now: float) -> None:
            """Keep the lease for a new generation."""

        def tick(self, now: float) -> str:
            """Return the name of a tick that the launcher sends now."""

        def answered(self, name: str, by: Optional[int]) -> bool:
            """Count an answer of a launcher, or of the supervisor (None). Return whether the tick was one of our own."""

        def probed(self, name: str) -> bool:
            """Take note that the supervisor has answered without a lease. Return whether the tick was one of our own."""

        def held(self, now: float) -> bool:
            """Return whether processes may run."""

        def end(self) -> float:
            """Return until when processes may run if nobody answers any more, 0 for ever."""

        def waits(self) -> str:
            """Return what the launcher waits for before processes may run."""

        def why_over(self) -> str:
            """Return why the processes may not go on."""

        def unheard(self, now: float) -> Dict[int, float]:
            """Return the members that do not hold their part of the lease, and for how many seconds they have not."""


TICK = 1.0  # seconds between two ticks; also the least time after which a launcher reports another one as unheard
SILENT_TICKS = 2.5  # ticks after which a launcher counts as not heard
UNSUPERVISED = 3.0  # seconds without an answer of the supervisor's after which launchers go on by themselves
FIRST_TICKS = 0.2  # seconds between two ticks while nothing may start before one is answered
NOBODY = -1  # in the place of a node's number, while a launcher is idle
PROBE_MARK = ":probe"  # the end of what a supervisor says beside an answer that gives no lease


class Ticks:
    """The ticks of this launcher that may still be answered. Nobody can guess their names."""

    def __init__(self) -> None:
        self.sent: Dict[str, float] = {}  # when each was sent, oldest first

    def add(self, now: float, timeout: float) -> str:
        """Return the name of a tick that is sent now; forget those that are older than `timeout`."""
        for old in [name for name, at in self.sent.items() if now - at > timeout]:
            del self.sent[old]
        name = os.urandom(8).hex()
        self.sent[name] = now
        return name


def take_answer(lease: Lease, name: str, echo: str) -> bool:
    """Count an answer of the supervisor, which says `echo` beside it. Return whether the tick was one of our own.

    A probe renews no lease: by its echo, the supervisor finds out whether its answers arrive.
    """
    return lease.probed(name) if echo.endswith(PROBE_MARK) else lease.answered(name, None)


class Validity:
    """Whether a lease is valid. Once it has been and is not any more, it is over for good."""

    def __init__(self) -> None:
        self.had = self.over = False

    def check(self, renewed: Optional[float], timeout: float, now: float) -> bool:
        """Return whether a lease that was last renewed at that time is valid."""
        fresh = renewed is not None and now - renewed <= timeout
        self.over = self.over or (self.had and not fresh)
        self.had = self.had or fresh
        return fresh and not self.over

    def lose(self) -> None:
        """End it, if there was one."""
        self.over = self.had


class MajorityLease:
    """The lease that the supervisor, or a strict majority of the generation's launchers, renews by answering ticks.

    An answer renews it from when its tick was *sent*, however late it comes. The supervisor's answer is enough; answers
    of launchers count once these and this one are a strict majority of the generation. Unanswered for `timeout` seconds
    it is over. A host that has a server beside its trainer has one vote.

    `watched` says whether there may be a supervisor; there is none in clusters and allocations.
    """

    def __init__(self, watched: bool = True) -> None:
        self.watched = watched
        self.begin(None, [], 0, 0.0, 0.0)

    def begin(
        self,
        generation: Optional[str],
        nodes: Sequence[int],
        me: int,
        timeout: float,
        now: float,
        voters: Optional[Sequence[int]] = None,
    ) -> None:
        """Ask for a lease for a new generation."""
        self.generation, self.me, self.timeout, self.began = generation, me, timeout, now
        counted = nodes if voters is None else voters
        self.votes = me in counted or generation is None
        self.validity, self.ticks = Validity(), Ticks()
        self.supervisor: Optional[float] = None  # when the newest tick was sent for which it has given the lease
        self.watcher: Optional[float] = None  # likewise, that it has answered in any way
        self.answers: Dict[int, float] = {}  # likewise, by launcher
        self.heard: Dict[int, float] = {node: now for node in nodes if node != me}  # when we last answered each of them
        self.others = [node for node in counted if node != me]
        self.moved: Optional[Tuple[Sequence[int], int]] = None
        self.of: Optional[int] = None  # of how many launchers most have to answer, where fewer of them count

    def count_only(self, nodes: Sequence[int], of: int) -> None:
        """Count the answers of these nodes only, and this one only if it is one of them: launchers have moved the others.

        Of two launchers of a node, at two places, both may answer, each in another order. So neither counts, and two
        majorities of the `of` launchers of one base always have a launcher in common, whatever either knows.
        """
        self.others = [node for node in self.others if node in nodes]
        self.votes, self.of = self.votes and self.me in nodes, of

    def begin_elsewhere(self, clear: Sequence[int], voters: int) -> None:
        """Ask for the first lease of a node that has moved: only the answers of `clear` count, which never were elsewhere.

        `voters` is how many launchers were counted where the node was. Its own vote does not count: no launcher there has it.
        """
        self.moved = clear, voters

    def move_on(self, generation: str, nodes: Sequence[int], me: int, now: float) -> None:
        """Keep the lease for a new generation."""
        self.generation, self.me = generation, me
        self.others = [node for node in nodes if node != me]
        self.heard = {node: self.heard.get(node, now) for node in self.others}

    def tick(self, now: float) -> str:
        """Return the name of a tick that the launcher sends now. Without a lease, others may still hand it an order."""
        return self.ticks.add(now, max(self.timeout, UNSUPERVISED))

    def answered(self, name: str, by: Optional[int]) -> bool:
        """Count an answer of a launcher, or of the supervisor (None). Return whether the tick was one of our own."""
        at = self.ticks.sent.get(name)
        if at is None:
            return False
        if by is None:
            self.supervisor = max(at, self.supervisor or at)
            self.probed(name)
        elif by in self.others:
            self.answers[by] = max(at, self.answers.get(by, at))
        return True

    def probed(self, name: str) -> bool:
        """Take note that the supervisor has answered without a lease. Return whether the tick was one of our own."""
        at = self.ticks.sent.get(name)
        if at is not None:
            self.watcher = max(at, self.watcher or at)
        return at is not None

    def asked(self, generation: str, by: int, now: float) -> bool:
        """Return whether to answer the tick of another launcher: it has to be of the same generation."""
        if generation != self.generation or by not in self.heard or self.validity.over:
            return False
        self.heard[by] = now
        return True

    def misses(self, by: int) -> bool:
        """Return whether a launcher that counts has not answered yet."""
        return by in self.others and by not in self.answers

    def renewed(self) -> Optional[float]:
        """Return from when on it counts, None if nobody has answered."""
        # That many others (and this one, if it is counted) are a strict majority.
        needed = (len(self.others) + 1) // 2 if self.votes else len(self.others) // 2 + 1
        if self.of is not None:
            needed = self.of // 2 + (0 if self.votes else 1)
        counted = self.others
        if self.moved is not None and not self.validity.had:
            counted, needed = list(self.moved[0]), self.moved[1] // 2 + 1
        times = sorted((at for node, at in self.answers.items() if node in counted), reverse=True)
        by_launchers = times[needed - 1] if 0 < needed <= len(times) else None
        found = [at for at in (self.supervisor, by_launchers) if at is not None]
        return max(found) if found else None

    def held(self, now: float) -> bool:
        """Return whether processes may run. The only node of a job is a majority by itself."""
        return self.is_alone or self.validity.check(self.renewed(), self.timeout, now)

    def supervised(self, now: float) -> bool:
        """Return whether a supervisor decides: it has answered a moment ago, or has hardly had the time to."""
        return self.watched and now - (self.supervisor or self.began) <= UNSUPERVISED

    def is_watched(self, now: float) -> bool:
        """Return whether a supervisor is there, which may leave it to the launchers to decide: see `supervised`."""
        return self.watched and now - (self.watcher or self.began) <= UNSUPERVISED

    @property
    def is_alone(self) -> bool:
        """Whether no other launcher is counted."""
        return self.votes and not self.others and self.of is None

    def end(self) -> float:
        """Return until when processes may run if nobody answers any more, 0 for ever."""
        return 0.0 if self.is_alone else (self.renewed() or 0.0) + self.timeout

    def waits(self) -> str:
        """Return what the launcher waits for before processes may run."""
        by = "the supervisor or most of the launchers" if self.watched else "most of the launchers"
        return "waits for an answer from %s" % by

    def why_over(self) -> str:
        """Return why the processes may not go on."""
        if not self.watched:
            return "most of the launchers have not answered for %g s" % self.timeout
        return "neither the supervisor nor most of the launchers have answered for %g s" % self.timeout

    def unheard(self, now: float) -> Dict[int, float]:
        """Return the launchers that we have not answered for a while, and for how many seconds."""
        return {node: now - at for node, at in self.heard.items() if now - at > SILENT_TICKS * TICK}
