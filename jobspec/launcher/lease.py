"""The lease without which a node does not train."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence
TICK = 1.0  # seconds between two ticks; also the least that an unheard launcher is told of
FIRST_TICKS = 0.2  # seconds between two ticks while nothing may start before one is answered


class Lease:
    """The right to run processes in a generation, renewed only by answers to this launcher's own ticks.

    An answer renews it from when its tick was *sent*, however late it comes: that of the supervisor alone, those of
    launchers once with this one they are a strict majority of the generation's. Unanswered for `timeout` seconds it is
    over, and does not come back before the next generation. Whoever starts a node elsewhere relies on that: see
    docs/recovery.md. Times are of `boot_time`.
    """

    WAITS = "waits for an answer from the supervisor or most of the launchers"

    def __init__(self) -> None:
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
        """Ask for one for a new generation of `nodes`, named by the id of its rendezvous.

        Only `voters` (None: all) are counted: a host that has a server beside its trainer has one vote.
        """
        self.generation, self.me, self.timeout = generation, me, timeout
        counted = nodes if voters is None else voters
        self.votes = me in counted or generation is None
        self.had = self.over = False
        self.sent: Dict[str, float] = {}  # ticks that may still be answered, oldest first
        self.supervisor: Optional[float] = None  # when the newest tick that it has answered was sent
        self.answers: Dict[int, float] = {}  # likewise, by launcher
        self.heard: Dict[int, float] = {node: now for node in nodes if node != me}  # when each was last answered by us
        self.others = [node for node in counted if node != me]

    def move_on(self, generation: str, nodes: Sequence[int], me: int, now: float) -> None:
        """Have the same lease for a new generation."""
        self.generation, self.me = generation, me
        self.others = [node for node in nodes if node != me]
        self.heard = {node: self.heard.get(node, now) for node in self.others}

    def tick(self, now: float) -> str:
        """Return the name of a tick that is sent now; nobody can guess it."""
        for old in [name for name, at in self.sent.items() if now - at > self.timeout]:
            del self.sent[old]
        name = os.urandom(8).hex()
        self.sent[name] = now
        return name

    def answered(self, name: str, by: Optional[int]) -> None:
        """Take note of an answer, of the supervisor's (None) or a launcher's; one to no tick of ours means nothing."""
        at = self.sent.get(name)
        if at is None:
            return
        if by is None:
            self.supervisor = max(at, self.supervisor or at)
        elif by in self.others:
            self.answers[by] = max(at, self.answers.get(by, at))

    def asked(self, generation: str, by: int, now: float) -> bool:
        """Say whether the tick of another launcher is to be answered: it is of the same generation."""
        if generation != self.generation or by not in self.heard or self.over:
            return False
        self.heard[by] = now
        return True

    def misses(self, by: int) -> bool:
        """Say whether a launcher that counts has not answered yet."""
        return by in self.others and by not in self.answers

    def renewed(self) -> Optional[float]:
        """Return from when on it counts, None if nobody has answered."""
        # That many others (and this one, if it is counted) are a strict majority.
        needed = (len(self.others) + 1) // 2 if self.votes else len(self.others) // 2 + 1
        times = sorted(self.answers.values(), reverse=True)
        by_launchers = times[needed - 1] if 0 < needed <= len(times) else None
        found = [at for at in (self.supervisor, by_launchers) if at is not None]
        return max(found) if found else None

    def held(self, now: float) -> bool:
        """Say whether processes may run. The only node of a job is a majority by itself."""
        return self.is_alone or self.is_fresh(now)

    @property
    def is_alone(self) -> bool:
        """Whether nobody else is counted."""
        return self.votes and not self.others

    def is_fresh(self, now: float) -> bool:
        """Say whether it was renewed in time, always."""
        at = self.renewed()
        fresh = at is not None and now - at <= self.timeout
        self.over = self.over or (self.had and not fresh)
        self.had = self.had or fresh
        return fresh and not self.over

    def end(self) -> float:
        """Return until when processes may run if nobody answers any more, 0 for ever."""
        return 0.0 if self.is_alone else (self.renewed() or 0.0) + self.timeout

    def why_over(self) -> str:
        """Say why the processes may not go on."""
        return "neither the supervisor nor most of the launchers have answered for %g s" % self.timeout

    def unheard(self, now: float) -> Dict[int, float]:
        """Return the launchers that were not answered for a while, and for how many seconds."""
        return {node: now - at for node, at in self.heard.items() if now - at > 2.5 * TICK}
