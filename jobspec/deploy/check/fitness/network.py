"""Links between hosts, and a sum over all of them, measured by the probes that run there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from functools import partial

from jobctl.jobspec.deploy.check.cut_off import HINT, cut_off
from jobctl.jobspec.deploy.check.fitness.effort import Effort
from jobctl.jobspec.deploy.check.fitness.findings import HINTS, WRONG, significant
from jobctl.jobspec.deploy.check.fitness.links import (
    LinkSpeed,
    LinkTransfer,
    Measured,
    Pair,
    by_host,
    deciding,
    directions,
    disjoint_groups,
    doubtful,
    lossy,
    measure_links,
    slow_pairs,
    unsure,
)
from jobctl.jobspec.deploy.check.fitness.samples import transfer_speed
from jobctl.jobspec.deploy.check.fitness.session import ProbeSession
from jobctl.jobspec.deploy.check.fitness.sums import wrong_sums
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.transport.aside import aside
from jobctl.jobspec.deploy.transport.fanout import fan_out

CALL = 90.0  # seconds in which a probe measures a link on a busy host
STREAMS = 4  # connections at once: one does not fill a fast link
BLOCK, SHARED_BLOCK = 1 << 18, 1 << 16  # bytes that are sent at once; the kernel is asked after each of them
# Bytes, of which one in a hundred packets is some: a transfer takes longer until they have come
MIN_TRANSFER_BYTES = 1 << 20
MAX_PARALLEL = 512  # pairs
ONE_SIDED = 0.5  # of the faster direction's speed


class HostNetwork:
    """The probes of hosts that talk to each other. `addresses` is where the others reach each host."""

    def __init__(
        self,
        sessions: Mapping[str, ProbeSession],
        addresses: Mapping[str, str],
        machines: Sequence[Sequence[str]],
        effort: Effort,
        word: str,
    ) -> None:
        self.sessions, self.addresses, self.effort, self.word = sessions, addresses, effort, word
        self.machine = {host: number for number, hosts in enumerate(machines) for host in hosts}
        self.crowded = {number for number, hosts in enumerate(machines) if len(hosts) > 1}
        self.failed: dict[str, DeployError] = {}
        self.cut: dict[Pair, HostError] = {}  # why nothing came through, by sender and receiver
        self.tries: dict[Pair, list[LinkTransfer]] = {}  # by sender and receiver
        self.pairs: dict[Pair, LinkSpeed] = {}

    def measure(self) -> dict[str, LinkSpeed]:
        """Measure the links of all hosts that can be reached at their addresses; return the best of each."""
        listening = fan_out(self.sessions, self._listen, MAX_PARALLEL)
        self.failed.update(listening.failed)
        self.sessions = {host: self.sessions[host] for host in listening.done}
        self.pairs = measure_links(list(self.sessions), self._round)
        for _ in range(self.effort.again):  # what looks slow may have been disturbed
            fastest = max((pair.faster for pair in self.pairs.values()), default=0.0)
            doubted = deciding(self.pairs, doubtful(self.pairs))
            ways = {pair: found for pair in doubted if (found := unsure(self.tries, pair, fastest))}
            if not ways:
                break
            for pairs in disjoint_groups(list(ways)):
                self.pairs.update(self._round(pairs, ways))
        self.failed.update(self._cut_off())
        return by_host(self.pairs)

    def _cut_off(self) -> dict[str, DeployError]:
        """Return why hosts take part no more: they do not answer, or are to blame for links that carry nothing."""
        broken = {error.host: error for error in self.cut.values() if self.sessions[error.host].broken}
        cut = {way: error for way, error in self.cut.items() if way not in self.tries and broken.keys().isdisjoint(way)}
        found: dict[str, DeployError] = dict(broken)
        for host in cut_off(cut, list(self.sessions), ()):
            told = [(a, b, error.cause) for (a, b), error in cut.items() if host in (a, b)]
            words = [
                f"{a} cannot send to it ({why})" if b == host else f"it cannot send to {b} ({why})"
                for a, b, why in told
            ]
            found[host] = HostError(host, "unreachable-peers", ", ".join(words), HINT)
        return found

    @property
    def able(self) -> dict[str, ProbeSession]:
        """The hosts that have failed in nothing: one that is cut off would have the others fail, too."""
        return {host: session for host, session in self.sessions.items() if host not in self.failed}

    def _round(self, pairs: Sequence[Pair], ways: Mapping[Pair, Sequence[Pair]] | None = None) -> Measured:
        """Measure pairs side by side; those that have a crowded machine in common in turn, since they share its cores.

        `ways` are the directions of each that are measured, None for both.
        """
        turns: dict[object, list[Pair]] = {}
        for pair in pairs:
            crowded = [self.machine[host] for host in pair if self.machine[host] in self.crowded]
            turns.setdefault(crowded[0] if crowded else pair, []).append(pair)

        def measure(group: tuple[Pair, ...]) -> None:
            for sender, receiver in (way for pair in group for way in (ways[pair] if ways else directions(pair))):
                self._direction(sender, receiver)

        fan_out(map(tuple, turns.values()), measure, MAX_PARALLEL)
        return {pair: found for pair in pairs if (found := self._best(pair)) is not None}

    def _best(self, pair: Pair) -> LinkSpeed | None:
        """Return the best that a pair has reached in each direction; None if it could not be measured, in `failed` is why."""
        ways = [self.tries.get(way) for way in directions(pair)]
        if not ways[0] or not ways[1]:
            return None
        return LinkSpeed.of(ways[0], ways[1])

    def _direction(self, sender: str, receiver: str) -> None:
        """Measure what one host sends to another; nothing if the probe of one hangs, for which each question waits."""
        if self.sessions[sender].broken or self.sessions[receiver].broken:
            return
        shared = any(self.machine[host] in self.crowded for host in (sender, receiver))
        streams, block = (1, SHARED_BLOCK) if shared else (STREAMS, BLOCK)
        seconds = (self.effort.turn if shared else self.effort).link
        how = {"word": self.word, "streams": streams, "seconds": seconds, "least": MIN_TRANSFER_BYTES}
        try:
            port = self.sessions[receiver].ask("listen", CALL, address=self.addresses[receiver])["port"]
            receiving = aside(partial(self.sessions[receiver].ask, "receive", CALL, **how), "receives")
            try:
                to = {"to": self.addresses[receiver], "port": port, "block": block}
                sent = self.sessions[sender].ask("send", CALL, **to, **how)
            finally:
                wait([receiving])  # its probe answers one question at a time
            got = receiving.result()
        except HostError as error:
            self.cut.setdefault((sender, receiver), error)
            return
        lost = float(sent["again"]) / max(1.0, float(sent["sent"]))
        self.tries.setdefault((sender, receiver), []).append(
            LinkTransfer(transfer_speed(got, sent, shared=shared), lost)
        )

    # The sum.

    def add_up(self) -> dict[str, Json]:
        """Have all hosts that others reach add up numbers; return what each said.

        Raises DeployError: that of a host whose probe has ended, if there is one. Without it all the others fail, too.
        """
        hosts = list(self.able)
        listening = fan_out(hosts, self._listen, MAX_PARALLEL)
        self._raise(listening.failed)
        onward = {host: hosts[(number + 1) % len(hosts)] for number, host in enumerate(hosts)}

        def reduce(host: str) -> Json:
            to = onward[host]
            where = {"to": self.addresses[to], "port": listening.done[to], "word": self.word}
            seconds = 30.0 + len(hosts) / 10
            order = {"index": hosts.index(host), "count": len(hosts), "seconds": seconds}
            return self.sessions[host].ask("reduce", CALL + seconds, **where, **order)

        said = fan_out(hosts, reduce, len(hosts))
        self._raise(said.failed)
        return dict(said.done)

    def _raise(self, failed: Mapping[str, DeployError]) -> None:
        for host in sorted(failed, key=lambda host: not self.sessions[host].broken):
            raise failed[host]

    def _listen(self, host: str) -> int:
        return int(self.sessions[host].ask("listen", CALL, address=self.addresses[host])["port"])


def link_findings(network: HostNetwork, hosts: Mapping[str, LinkSpeed]) -> Iterator[Finding]:
    """Yield what is wrong with links beside their speed: lost segments, and pairs that are slow only together."""
    for host, lost in lossy(hosts).items():
        text = f"{100 * lost:.1f} % of what its link carries is lost and sent again"
        yield Finding(host, "link", "error", text, "slow-link", HINTS["slow-link"], significant(100 * lost), 0.0, "%")
    if len(hosts) == 2:
        yield from _one_sided(network.pairs)
    for one, other in slow_pairs(network.pairs):
        if network.machine[one] == network.machine[other]:  # there is nothing between the two
            continue
        speed = network.pairs[one, other].speed
        best = max(pair.speed for pair in network.pairs.values())
        text = f"{one} and {other} reach {speed:.0f} Mbit/s with each other, and are faster with other hosts"
        hint = "look at what is between the two: a switch, its uplink, or a route"
        yield Finding(
            other, "link", "warning", text, "slow-link", hint, significant(speed), significant(best), "Mbit/s"
        )


def _one_sided(pairs: Measured) -> Iterator[Finding]:
    """Yield that the only link is slow in one direction, which is all that two hosts can tell."""
    for (_, other), found in pairs.items():
        if found.speed < found.faster * ONE_SIDED:
            text = f"the link between the two hosts is slower in one direction: {found.speed:.0f} and {found.faster:.0f} Mbit/s"
            numbers = (significant(found.speed), significant(found.faster), "Mbit/s")
            yield Finding(other, "link", "warning", text, "slow-link", HINTS["slow-link"], *numbers)


def sum_findings(said: Mapping[str, Json]) -> Iterator[Finding]:
    """Yield a verdict for each host about the sum over all of them."""
    hosts = list(said)
    bad = dict(wrong_sums(hosts, said))
    for host in hosts:
        if host in bad:
            yield Finding(host, "collective", "error", bad[host], "wrong-result", WRONG)
        else:
            seconds = sorted(float(one["seconds"]) for one in said.values())
            numbers = (significant(float(said[host]["seconds"])), significant(seconds[len(seconds) // 2]), "s")
            text = f"its part of a sum over {len(hosts)} hosts is right"
            yield Finding(host, "collective", "ok", text, None, None, *numbers)
