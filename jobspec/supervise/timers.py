"""How long the supervisor waits: before it tries again, and before it trusts hosts that answer again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.launcher.peers.old_places import MARGIN
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.supervise.decisions import Decision, GiveUp, Rejoin, Repair, Restart, Wait
from jobctl.jobspec.supervise.host_loss import lost_nodes

UNFIT = 600.0  # seconds for which a host that could not take a node comes after all others
AWAY_FOR = 10.0  # seconds for which it is left alone
OUT_AFTER = 30.0  # seconds of attempts after which an engine that does not answer counts as one that refuses: it does not restart
STEP = 5.0  # seconds that one look after another counts, at most
FIRST_PAUSE, LONGEST_PAUSE = 0.3, 5.0  # seconds before what could not be done is tried again, at first and at last


@dataclass
class Retry:
    """When to try again what could not be done: after pauses that grow, for as long as the same step is due."""

    what: object = None
    pause: float = 0.0
    due: float = 0.0

    def waits(self, what: object, now: float) -> bool:
        """Say whether it is too early to try `what` again. A clock that was set back keeps nobody waiting."""
        return what == self.what and 0.0 < self.due - now <= self.pause

    def failed(self, what: object, now: float) -> None:
        """Take note that `what` could not be done."""
        self.pause = min(2 * self.pause, LONGEST_PAUSE) if what == self.what else FIRST_PAUSE
        self.what, self.due = what, now + self.pause

    def done(self) -> None:
        """Take note that nothing is left to be tried again."""
        self.what, self.pause = None, 0.0


@dataclass
class Waited:
    """For how many seconds, `so_far`, looks have found nothing to do but wait.

    What lies between two looks counts only as far as the supervisor really looked: not the weekend for which its machine
    slept, nor the hour for which it heard nobody. Meanwhile the job may have gone on without it.
    """

    so_far: float = 0.0
    last: float | None = None  # when it was looked last
    generation: str | None = None  # the id of its rendezvous: in the next one there is a host for each node

    def look(self, decision: Decision, observed: Observed, now: float) -> None:
        """Take note of a look, and of what was decided.

        A restart or a repair may fail, so it does not end the wait, unless the job goes on meanwhile. Nor does the decision to
        give up, which is made again with the lock held.
        """
        generation = observed.control.generation
        current = generation.rendezvous.id if generation is not None else None
        if current != self.generation:
            self.generation = current
            self.done()
        held = isinstance(decision, Restart | Repair | Rejoin) and decision.held is not None
        waits = held or bool(lost_nodes(observed))
        runs = isinstance(decision, Wait | Repair) and decision.runs
        if waits and not runs:
            self.wait(now)
        elif runs or not isinstance(decision, Restart | Repair | GiveUp):
            self.done()

    def wait(self, now: float) -> None:
        """Take note of a look that has found nothing else."""
        self.so_far += min(max(0.0, now - (now if self.last is None else self.last)), STEP)
        self.last = now

    def done(self) -> None:
        """Take note of a look that has found something."""
        self.so_far, self.last = 0.0, None


@dataclass
class Steady:
    """Since when each host answers; after its clock was set back, since then."""

    since: dict[str, float] = field(default_factory=dict)

    def look(self, hosts: Iterable[str], now: float, least: float) -> bool:
        """Take note of the hosts that answer; say whether all of them have done so for `least` seconds."""
        self.since = {host: min(self.since.get(host, now), now) for host in hosts}
        return all(now - at >= least for at in self.since.values())


@dataclass
class Paused:
    """Since when containers are paused, or launchers here stopped; after the clock was set back, since then."""

    since: dict[object, float] = field(default_factory=dict)  # by container, or the pid of a launcher

    def look(self, observed: Observed, now: float) -> Observed:
        """Return the job with those nodes as dead whose leases are over: their launchers end them if they ever go on."""
        unfinished = [node for node in observed.members if node.alive and node.state != "exited"]
        paused = {node.container or node.launcher: node for node in unfinished if node.paused}
        self.since = {container: min(self.since.get(container, now), now) for container in paused}
        generation = observed.control.generation
        limit = generation.lease_limit + MARGIN if generation is not None else 0.0
        over = {node.node for container, node in paused.items() if now - self.since[container] >= limit}
        nodes = tuple(_dead(node) if node.node in over else node for node in observed.nodes)
        return replace(observed, nodes=nodes) if over else observed


def _dead(node: ObservedNode) -> ObservedNode:
    return replace(node, state="failed", launcher=None, failure=None, reason=node.frozen_by[0])


@dataclass
class Joining:
    """Since when nodes get ready that the generation lacks; each generation begins without any."""

    generation: str | None = None  # the id of its rendezvous
    since: dict[int, float] = field(default_factory=dict)

    def look(self, observed: Observed, now: float) -> Mapping[int, float]:
        """Return for how many seconds nodes have got ready.

        Also those that somebody else has started: an earlier supervisor, for one. They have had no part in the job.
        """
        generation = observed.control.generation
        current = generation.rendezvous.id if generation is not None else None
        if current != self.generation:
            self.generation, self.since = current, {}
        members = observed.control.placement
        for node in observed.nodes:
            if node.node not in members and node.alive and node.generation == 0:
                self.since.setdefault(node.node, now)
        return {node: max(0.0, now - at) for node, at in self.since.items()}

    def started(self, observed: Observed, nodes: Iterable[int], now: float) -> None:
        """Take note of nodes that were started just now."""
        self.look(observed, now)
        self.since |= dict.fromkeys(nodes, now)


@dataclass
class Unfit:
    """Hosts that could not take a node: left alone for a while, and the last choice for a longer one.

    They are not ruled out: a job without any other host would stop, though the cause may be gone.
    """

    since: dict[str, float] = field(default_factory=dict)  # when each failed last
    away: set[str] = field(default_factory=set)  # those that only did not answer
    why: dict[str, str] = field(default_factory=dict)  # what each could not do, in the words of its error
    silent: dict[str, float] = field(default_factory=dict)  # since when those do not answer

    def failed(self, host: str, now: float, why: str, *, away: bool) -> None:
        """Take note that a host could not take a node, and `why`; `away`: it only did not answer."""
        goes_on = away and host in self.hosts(now) & self.away
        self.silent[host] = min(self.silent.get(host, now), now) if goes_on else now
        self.since[host], self.why[host] = now, why
        (self.away.add if away else self.away.discard)(host)

    def hosts(self, now: float) -> frozenset[str]:
        """Return the hosts that are the last choice, or none."""
        since = {host: min(at, now) for host, at in self.since.items()}  # the clock may have been set back
        kept = {host: at for host, at in since.items() if now < at + (AWAY_FOR if host in self.away else UNFIT)}
        self.since = kept
        return frozenset(kept)

    def started(self, hosts: Iterable[str]) -> None:
        """Take note of hosts that run all of their nodes: what kept them from it is over. They stay the last choice."""
        for host in hosts:
            self.why.pop(host, None)
            self.silent.pop(host, None)

    def refusing(self, now: float) -> dict[str, str]:
        """Return the hosts that could not start a node since they last ran all that they have, with their words.

        One that only did not answer, as while its engine restarts, is among them once that has lasted for long.
        """
        known = self.hosts(now)
        lasting = {host for host in known & self.away if now - self.silent.get(host, now) >= OUT_AFTER}
        return {host: self.why[host] for host in (known - self.away) | lasting if host in self.why}

    def order(self, hosts: Iterable[str], now: float) -> tuple[str, ...]:
        """Return those of `hosts` that may be tried now, the last choice last."""
        unfit = self.hosts(now)
        known = [host for host in hosts if host not in unfit or now >= self.since[host] + AWAY_FOR]
        return tuple(sorted(known, key=lambda host: host in unfit))


def identity(decision: Decision) -> object:
    """Return what two decisions have in common that are about the same: times and steps go on meanwhile."""
    return type(decision), getattr(decision, "cause", getattr(decision, "reason", None))
