"""The hosts and launchers that were heard, and when: which ticks the supervisor answers, and which nodes can hold no lease any more.

Pure except for the clock it is given. A launcher keeps running on an answer to its own tick, from the supervisor or from a
strict majority of its generation's launchers, for `host_timeout` from when that tick was sent (launcher.Lease). So a
node may be started elsewhere once it is certain that it had no such answer:

* We have heard no tick of it for `host_timeout` and MARGIN.
* Of the launchers that we hear ourselves, none has answered it for `host_timeout`, each by its own words. A launcher
  repeats what we last told it, so we know a moment after which it has spoken.
* Those that we hear are at least half of the generation: every strict majority has one of them. Counted are trainers,
  as launchers count them: servers beside them on the same host would give that host two votes.
* A launcher that does not run says the same as one that answers nobody, from when we have seen that it does not, up to
  the start of the newest look that found none.

What one launcher says of a second that it hears is not enough: {we, A}, {A, B}, {B, C, D} may all hear one another, and
nobody tells us that C and D keep B alive.

With etcd (launcher/etcd/session.py) its leases alone decide: a node that a launcher calls unheard has none there. If we
do not hear a node, it is started elsewhere once a launcher that we hear says so. If we hear no launcher at all, it is
started elsewhere without asking: the new launcher begins nothing before etcd gives it the node's lease.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

from jobctl.jobspec.deploy.model.control import age
from jobctl.jobspec.deploy.model.loop_watch import LoopWatch
from jobctl.jobspec.deploy.model.tick import Tick
from jobctl.jobspec.deploy.model.untrusted import Json, as_number, objects
from jobctl.jobspec.launcher.peers.lease import PROBE_MARK
from jobctl.jobspec.launcher.peers.old_places import CONFIRMED, MARGIN
from jobctl.jobspec.plan.generation import Generation, OldPlace
from jobctl.jobspec.records import dataclass

EXPIRY = 15  # seconds after which a lock is free whose holder is not heard of any more
COUNT = 0.2  # seconds between two counts of the hosts that are heard
SILENCE = 3.0  # seconds without a tick after which a host is called unreachable
RECENT = 5.0  # seconds for which what a launcher says of others counts


@dataclass(frozen=True, slots=True)
class Said:
    """The last words of a launcher: heard at `at`, spoken after `after`; whom it has not answered, for how many seconds."""

    at: float
    after: float
    unheard: Mapping[int, float]


@dataclass
class FailureDetector:
    """What one supervisor has heard of one job. `now` is a clock that nobody sets; `token` tells it from any other."""

    now: Callable[[], float]
    token: str
    generation: Generation | None = None
    previous: Generation | None = None  # the one before
    progress: dict[int, int | None] = field(default_factory=dict)  # by node, as last heard
    paces: dict[int, Mapping[int, float]] = field(default_factory=dict)  # by node, as last heard
    left: frozenset[int] = frozenset()  # nodes that have failed, and are left to the launchers: they get no lease
    silent: bool = False  # whether all is left to the launchers: they get no answer, as if no supervisor were there

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._loop = LoopWatch(SILENCE)
        self._began = self._expected = self.now()
        self._foreign = False
        self._heard: dict[int, float] = {}
        self._said: dict[int, Said] = {}
        self._missed: dict[int, tuple[float, float]] = {}  # since when no launcher was there, and up to when
        self._joined: dict[int, float] = {}  # when each launcher was heard first in the generation
        self._clear: dict[int, set[int]] = {}  # launchers that keep a moved node alive nowhere else, by that node
        self._vacant: set[OldPlace] = set()  # old places of this generation where nothing of the node is any more
        self._kept: dict[int, frozenset[int]] = {}  # nodes that a launcher may keep alive elsewhere, as it last said
        self._leases = {
            one.lease for one in (self.generation, self.previous) if one is not None
        }  # that were ever known
        self._ahead: set[str] = set()  # hosts whose launchers are in a lease that this supervisor does not know
        self._hosts: dict[str, float] = {}
        self._confirmed: dict[tuple[int, str], float] = {}  # when we sent the newest answer that a node has repeated
        self._counted = (float("-inf"), False)  # when it was counted last whether enough hosts are heard, and whether

    def refreshed(self, node: int, report: Json) -> Json:
        """Return a launcher's report with what its ticks have told since."""
        paces = self.paces.get(node, {})
        fresh = {**report, "progress": self.progress.get(node, report.get("progress"))}
        if paces:
            processes = objects(report.get("processes"))
            fresh["processes"] = [
                {**p, "own_seconds": paces.get(as_number(p.get("local_rank")) or 0)} for p in processes
            ]
        return fresh

    def expect(self, generation: Generation | None) -> None:
        """Take `generation` for the current one, unless a later one is known; nobody has spoken in it yet."""
        with self._lock:
            before = self.generation
            if before is not None and (generation is None or age(generation) < age(before)):
                return
            self.generation, self._counted = generation, (float("-inf"), False)
            if generation is not None:
                self._leases.add(generation.lease)
                self._ahead.clear()
            if before is not None and generation is not None and _follows(before, generation):
                self.previous = before
            if generation is None or before is None or before.lease != generation.lease:
                self._expected = self.now()
                self._began = max(self._began, self._expected)
                self._heard, self._said, self._missed = {}, {}, {}
                self._joined, self._clear, self._kept, self.paces = {}, {}, {}, {}
                self._vacant = set()

    def miss(self, looked: Mapping[int, float]) -> None:
        """Take note of all nodes whose launchers do not run where they belong, and when the looks began that found so."""
        with self._lock:
            now = self.now()
            self._missed = {node: (self._missed.get(node, (now, at))[0], at) for node, at in looked.items()}

    def vacate(self, empty: Mapping[OldPlace, float]) -> None:
        """Take note of old places where there is nothing of the node any more, and when the looks began that found so.

        Then the node may begin without a majority that is clear of them: where two nodes are left, there may be none.
        """
        with self._lock:
            self._vacant |= {place for place, at in empty.items() if at > self._expected}

    def begin_anew(self) -> None:
        """Forget the generation: numbers begin at 1 again when a job is taken down and brought up again."""
        with self._lock:
            self.generation = None

    def turned(self, *, all_run: bool) -> None:
        """Take note that the supervisor's loop goes on, and whether all nodes ran when it looked last."""
        with self._lock:
            self._loop.turned(self.now(), all_run=all_run)

    @contextlib.contextmanager
    def at_length(self) -> Iterator[None]:
        """Do in the block what may rightly take long, and gives up by itself what does not go on."""
        with self._lock:
            self._loop.busy = True
        try:
            yield
        finally:
            with self._lock:
                self._loop.done(self.now())

    def succeed(self) -> None:
        """Take over from a supervisor elsewhere: it may live, and answer those whom we cannot hear."""
        with self._lock:
            self._foreign, self._counted = True, (float("-inf"), False)
            self._began = max(self._began, self.now() + EXPIRY)

    def hear_host(self, host: str) -> None:
        """Take note of a tick of a host's own."""
        with self._lock:
            self._hosts[host] = self.now()

    def seconds_overdue(self, host: str) -> float | None:
        """Return for how many seconds too long a host has said nothing, None if it has."""
        with self._lock:
            at = self._hosts.get(host)
            return None if at is None or self.now() - at <= SILENCE else self.now() - at

    def hear(self, tick: Tick, host: str) -> str | None:
        """Take note of a launcher's tick; return the answer: its name, and what the launcher is to repeat. None for none.

        It is a probe, which gives no lease, as long as too few launchers have repeated a recent answer.
        """
        with self._lock:
            now, node = self.now(), tick.node
            self._missed.pop(node, None)
            generation = self.generation
            if tick.generation is None or tick.generation in self._leases:
                self._ahead.discard(host)
            else:
                self._ahead.add(host)
            if generation is None or tick.generation != generation.lease:
                return None
            if not any(member.node == node and member.host == host for member in generation.members):
                return None
            self.progress[node], self.paces[node] = tick.progress, tick.paces
            self._heard[node] = now
            self._loop.heard(node, tick.report, now)
            if tick.echo is not None and tick.echo[0] == self.token:
                self._confirmed[node, host] = tick.echo[1]
                if tick.unheard is not None:
                    self._said[node] = Said(now, tick.echo[1], tick.unheard)
            self._note_clear(tick, generation, now)
            if self.silent or self._loop.leaves_all(now, self._heard) or not self._may_answer(generation, now):
                return None
            lease = node not in self.left and self._are_confirmed(generation, now) and self._may_begin(node, generation)
            return f"{tick.name} {self.token}:{now:.3f}{'' if lease else PROBE_MARK}"

    def _note_clear(self, tick: Tick, generation: Generation, now: float) -> None:
        """Take note of the moved nodes that a launcher keeps alive nowhere else."""
        self._joined.setdefault(tick.node, now)
        self._kept[tick.node] = tick.kept
        for node in generation.moved & (tick.clear or frozenset()):
            self._clear.setdefault(node, set()).add(tick.node)

    def _may_begin(self, node: int, generation: Generation) -> bool:
        """Say whether a node may run where it is: one that has moved, once half of the launchers keep it alive nowhere else.

        A launcher that was heard in the generation answers no older one. So it counts after the timeout of the lease at
        the latest. One that has moved never counts.
        """
        moves = generation.moves
        if moves is None or node not in generation.moved:
            return self._may_stay(node, generation)
        if {place for place in moves.places if place.node == node} <= self._vacant:
            return True
        long_ago = self.now() - generation.lease_limit - MARGIN
        clear = self._clear.get(node, set()) | {other for other, at in self._joined.items() if at <= long_ago}
        return self._is_enough(len(clear & (set(_voters(generation)) - generation.moved)), moves.voters)

    def _may_stay(self, node: int, generation: Generation) -> bool:
        """Say whether a node may run that has not moved, as far as this supervisor knows: launchers may have moved it.

        Then one of each half of the launchers keeps it alive elsewhere.
        """
        before = self.previous
        if not _may_move(generation) and not (before is not None and _may_move(before)):
            return True
        free = {other for other in self._joined if node not in self._kept.get(other, ())}
        voters = set(_voters(generation))
        return self._is_enough(len(free & voters), len(voters))

    def may_own(self) -> bool:
        """Say whether hosts may keep our name in the place of another supervisor's, which may live and hear the others.

        Only with more than half of them: a supervisor that finds its own name on hosts is content with half.
        """
        with self._lock:
            generation = self.generation
            return generation is not None and 2 * self._hosts_heard(generation) > len(_voters(generation))

    def _hosts_heard(self, generation: Generation) -> int:
        """Return how many hosts of voters are heard. Those do not count that others have given a later order."""
        now = self.now()
        hosts = [host for host in _voters(generation).values() if host not in self._ahead]
        return sum(now - self._hosts.get(host, -2 * SILENCE) <= SILENCE for host in hosts)

    def _may_answer(self, generation: Generation, now: float) -> bool:
        """Say whether we hear the hosts of half of the nodes: who hears fewer may have been succeeded elsewhere.

        With etcd nothing depends on it.
        """
        if generation.etcd_decides:
            return True
        if now - self._counted[0] < COUNT:
            return self._counted[1]
        self._counted = now, self._is_enough(self._hosts_heard(generation), len(_voters(generation)))
        return self._counted[1]

    def _are_confirmed(self, generation: Generation, now: float) -> bool:
        """Say whether half of the nodes have repeated an answer of the last seconds: ticks may arrive, and answers not.

        Launchers to which no answer has come for long may have moved a node, and we hear of that too late.
        """
        if generation.etcd_decides:
            return True
        voters = _voters(generation)
        recent = [node for node in voters.items() if now - self._confirmed.get(node, -math.inf) <= CONFIRMED]
        return self._is_enough(len(recent), len(voters))

    def _is_enough(self, count: int, of: int) -> bool:
        """Say whether so many are half: every strict majority has one of them. With another supervisor, two might have half."""
        return 2 * count > of if self._foreign else 2 * count >= of

    def cleared(self) -> frozenset[int]:
        """Return the nodes of the generation that cannot run any more, wherever they are."""
        with self._lock:
            generation, now = self.generation, self.now()
            if generation is None:
                return frozenset()
            nodes = {member.node for member in generation.members}
            spoken = self._said if generation.etcd_decides else {**self._said, **self._silence(nodes)}
            said = {node: s for node, s in spoken.items() if node in nodes and s.after >= now - RECENT}
            if generation.etcd_decides:
                limit = now - generation.host_timeout - MARGIN
                silent = frozenset(node for node in nodes if self._heard.get(node, self._began) <= limit)
                return silent & {node for one in said.values() for node in one.unheard} if said else silent
            voters = set(_voters(generation))
            if not self._is_enough(len(voters & set(said)), len(voters)):
                return frozenset()
            return frozenset(
                node
                for node in nodes - set(said)
                if self._is_clear(node, said, generation, now) and self._has_left(node, set(said))
            )

    def _silence(self, nodes: Iterable[int]) -> dict[int, Said]:
        """Return what launchers that do not run would say."""
        return {
            node: Said(until, until, dict.fromkeys(nodes, until - since))
            for node, (since, until) in self._missed.items()
        }

    def _has_left(self, node: int, said: set[int]) -> bool:
        """Say whether a node that was not heard in this generation cannot run in the previous one either.

        It may never have been told of this one, and hold a lease from others who were not.
        """
        before = self.previous
        if node in self._heard or before is None:
            return True
        voters = set(_voters(before))
        joined = any(member.node == node for member in before.members)
        return not joined or self._is_enough(len(voters & said), len(voters))

    def _is_clear(self, node: int, said: Mapping[int, Said], generation: Generation, now: float) -> bool:
        timeout = generation.host_timeout if node in self._heard else generation.lease_limit
        # A launcher that says nothing of a node has just answered it.
        answered = [s.at - s.unheard.get(node, 0.0) for s in said.values()]
        last, spoken = max(answered, default=self._began), min((s.after for s in said.values()), default=now)
        return (
            now >= self._heard.get(node, self._began) + timeout + MARGIN
            and spoken >= last + timeout
            and now >= last + timeout + MARGIN
        )

    def too_few(self) -> bool:
        """Say whether less than half of the generation can be heard, so that nothing may be started elsewhere."""
        with self._lock:
            generation, now = self.generation, self.now()
            return generation is not None and not self._may_answer(generation, now)


def _follows(before: Generation, generation: Generation) -> bool:
    """Say whether a node may still hold a lease of the generation before; one of launchers may have any number."""
    later = before.number < generation.number or (before.base is not None and before.base.id != before.rendezvous.id)
    return later and before.lease != generation.lease


def _may_move(generation: Generation) -> bool:
    """Say whether launchers may move nodes by themselves, or have done so."""
    return generation.autonomy is not None and (
        bool(generation.autonomy.spares) or generation.autonomy.moved is not None
    )


def _voters(generation: Generation) -> dict[int, str]:
    """Return the nodes that are counted, and their hosts."""
    return {member.node: member.host for member in generation.members if "trainer" in member.roles}
