"""Generations: who takes part, in which order of ranks, and where they meet.

A generation is state of the run. Everything here is a pure function, so that `render` and `up` agree on the
first one, and the supervisor on the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Literal

from jobctl.jobspec.plan.recovery import Failure, Rule
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.records import dataclass

# Where rendezvous ports are chosen: below Linux' ephemeral range (32768-60999), so that no outgoing
# connection can hold one by chance, and above the ports of common services.
FIRST_PORT = 20_000
PORTS = 10_000


@dataclass(frozen=True, slots=True)
class Member:
    """A node's place in a generation. `nproc` processes; global ranks are dealt in order of `rank`.

    `port` is where its launcher hears those of others, None while that is not known; `ports` are those of its processes,
    where they have some.
    """

    node: int
    rank: int
    roles: tuple[str, ...]
    host: str
    address: str
    nproc: int
    port: int | None = None
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RendezvousPoint:
    """Where the members of a generation meet."""

    address: str
    port: int
    id: str


@dataclass(frozen=True, slots=True)
class Base:
    """The generation that a supervisor or a command began last: its number, and the id of its rendezvous."""

    number: int
    id: str


@dataclass(frozen=True, slots=True)
class HotSpare:
    """A host with an idle launcher, which hears others at that port: launchers may give it a lost node."""

    host: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class LastMove:
    """The generation in which launchers have moved a node last: its number and id, and the count of such since the base."""

    number: int
    id: str
    times: int


@dataclass(frozen=True, slots=True)
class EarlierFailures:
    """Failures of which an order says no more than that they count, as others came after them.

    `first` is the generation that the first of them has ended. `count` of them count for good. Of the others, which count
    for a while only, there are the times.
    """

    first: int
    count: int
    at: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class AutonomyTerms:
    """What launchers may do by themselves while they have no supervisor.

    They begin at most `restarts` generations, each at a port within `ports` (first and last), unless the first of
    `rules` that matches says otherwise; `failures` are those because of which they have, since the last generation that
    a supervisor or a command began, or the last ones of these, and `earlier` the others. That generation is the `base`;
    None with etcd. They may move lost nodes to `spares`; `moved` is None where they have not.

    With a `window` failures count for so many seconds only; `spent` is then when those failed that `restarts` is less by.
    """

    restarts: int
    rules: tuple[Rule, ...]
    ports: tuple[int, int]
    failures: tuple[Failure, ...] = ()
    base: Base | None = None
    spares: tuple[HotSpare, ...] = ()
    moved: LastMove | None = None
    window: float | None = None
    spent: tuple[float, ...] = ()
    earlier: EarlierFailures | None = None


@dataclass(frozen=True, slots=True)
class OldPlace:
    """A host that a node was moved away from while nobody could look there."""

    node: int
    host: str


@dataclass(frozen=True, slots=True)
class Moves:
    """Where nodes may still run by an older generation.

    A node that is elsewhere now begins only once so many launchers are clear of its old places that no majority of the
    `voters` of the older generation is left there, see docs/protocol.md.
    """

    places: tuple[OldPlace, ...]
    voters: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The machine that has ordered a generation, with its state directory called `id`, and what the job is there.

    `machine` is its host name, `plan` a digest of all that the job is planned from, except the places of nodes.
    """

    machine: str
    id: str
    plan: str


@dataclass(frozen=True, slots=True)
class Generation:
    """The control file that is handed to the launchers while the job runs: state of the run, not of artefacts.

    `command` says what launchers do now: `run` this generation, `stop` (end the processes and stay), `finish`
    (end and exit). `grace` is how long processes of an earlier generation get between SIGTERM and SIGKILL; launchers
    that were unanswered for `host_timeout` seconds end theirs: their node may be started elsewhere. `began` is when the
    job was brought up from nothing (seconds since the epoch): numbers begin at 1 again then. `autonomy` is None
    where launchers begin nothing by themselves, `moves` where no node may still run at an old place. `why` is the reason
    where launchers have ended the job as failed, `cause` that for which a command or a supervisor has begun it. `origin`
    is None where only one machine can order any, and where an earlier version has ordered it. `longest_lease` is the
    `host_timeout` of earlier orders that launchers may still be in, where that is longer. `pause` is how often a command
    has stopped it for a change since its base; such a stop has it, and what launchers begin after it, but no other stop.
    """

    job: str
    run_id: str
    number: int
    command: Literal["run", "stop", "finish"]
    grace: float
    members: tuple[Member, ...]
    rendezvous: RendezvousPoint
    checkpoint_dir: str | None
    host_timeout: float = 30.0
    version: int = 1
    began: float = 0.0
    autonomy: AutonomyTerms | None = None
    moves: Moves | None = None
    why: str | None = None
    cause: str | None = None
    origin: Origin | None = None
    longest_lease: float | None = None
    pause: int | None = None

    @property
    def lease_limit(self) -> float:
        """For how many seconds a launcher may hold a lease of this order, or of one before that it has not left yet."""
        return max(self.host_timeout, self.longest_lease or 0.0)

    @property
    def moved(self) -> frozenset[int]:
        """The nodes that are elsewhere than where they may still run."""
        homes = {member.node: member.host for member in self.members}
        places = self.moves.places if self.moves else ()
        return frozenset(place.node for place in places if homes.get(place.node, place.host) != place.host)

    @property
    def base(self) -> Base | None:
        """The generation that it goes back to, where launchers may begin some; None with etcd."""
        return self.autonomy.base if self.autonomy else None

    @property
    def ordered_as(self) -> str:
        """The id of the order of a supervisor or a command that it goes back to."""
        return (self.base or self.rendezvous).id

    @property
    def lease(self) -> str:
        """The name of the lease in it: launchers that begin one on hosts go on with that of its base, until they move a node."""
        return self.lease_began.id

    @property
    def lease_began(self) -> Base | LastMove:
        """The generation that the lease began with."""
        moved = self.autonomy.moved if self.autonomy else None
        return (self.base and moved) or self.base or Base(self.number, self.rendezvous.id)

    @property
    def ended_by_launchers(self) -> bool:
        """Whether launchers have ended the job by themselves, and nobody has told them to finish since."""
        return self.command == "stop" and self.why is not None

    @property
    def is_paused(self) -> bool:
        """Whether a command has stopped it for a change, and launchers may go on with it if that does not come."""
        return self.command == "stop" and self.pause is not None

    def told(self, command: Literal["stop", "finish"], grace: float, *, for_change: bool = False) -> Generation:
        """Return the order to end its processes. Launchers go on only after one that is `for_change`, where they may."""
        may_go_on = for_change and self.base is not None and (self.command == "run" or self.is_paused)
        pause = (self.pause or 0) + (not self.is_paused) if may_go_on else None
        return replace(self, command=command, grace=grace, pause=pause)

    @property
    def etcd_decides(self) -> bool:
        """Whether etcd alone decides where a node may run."""
        return self.autonomy is not None and self.base is None


@dataclass(frozen=True, slots=True)
class Standing:
    """What a machine with its state directory knows of a job: as what it would order generations, of which plan.

    `agreed` is the order (by the id of its rendezvous) that ran when `up` brought the job to that plan the last time.
    """

    origin: Origin
    agreed: str | None = None

    def overruled_by(self, generation: Generation | None) -> Origin | None:
        """Return who has made the job another one since, None if nobody has: then the plan says what the job is."""
        theirs = generation.origin if generation is not None else None
        if generation is None or theirs is None or (theirs.id == self.origin.id or theirs.plan == self.origin.plan):
            return None
        return None if generation.ordered_as == self.agreed else theirs

    def is_placed_elsewhere(self, generation: Generation) -> bool:
        """Whether another machine, where the job is the same one, has ordered a generation since: by its places of nodes."""
        theirs = generation.origin
        if theirs is None or theirs.id == self.origin.id or theirs.plan != self.origin.plan:
            return False
        return generation.ordered_as != self.agreed


def endpoint(address: str, port: int) -> str:
    """Return where a process listens, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def first_generation(plan: Plan) -> Generation:
    """Return the generation that `up` of a new job starts with; its port may be taken, see `next_port`."""
    port = plan.rendezvous.port or port_of(plan.run_id, 1)
    return Generation(
        job=plan.job,
        run_id=plan.run_id,
        number=1,
        command="run",
        grace=plan.stop_grace,
        members=with_ports(members(plan.nodes), plan.nodes, port),
        rendezvous=RendezvousPoint(plan.nodes[0].host.address, port, f"{plan.job}-1"),
        checkpoint_dir=plan.checkpoint.dir if plan.checkpoint else None,
        host_timeout=plan.recovery.host_timeout,
    )


def next_generation(
    last: Generation, nodes: Iterable[Node], *, grace: float, free: Callable[[str, int], bool]
) -> Generation:
    """Return the generation after `last` with `nodes` as members, meeting at a port that `free` accepts for its host.

    `grace` is how long (seconds) processes of `last` may take to end.
    """
    number = last.number + 1
    nodes = tuple(nodes)
    joining = members(nodes)
    address, host = joining[0].address, joining[0].host
    port = next_port(last.run_id, number, lambda port: free(host, port))
    joining = with_ports(joining, nodes, port, free)
    meeting = RendezvousPoint(address, port, f"{last.job}-{number}")
    return replace(last, number=number, command="run", grace=grace, members=joining, rendezvous=meeting, pause=None)


def members(nodes: Iterable[Node]) -> tuple[Member, ...]:
    """Return the members of a generation: ranks follow the order of node numbers."""
    ordered = sorted(nodes, key=lambda node: node.index)
    return tuple(
        Member(node.index, rank, (node.role,), node.host.name, node.host.address, node.launch.nproc)
        for rank, node in enumerate(ordered)
    )


def with_ports(
    joining: Sequence[Member],
    nodes: Iterable[Node],
    meeting: int,
    free: Callable[[str, int], bool] = lambda host, port: True,
) -> tuple[Member, ...]:
    """Return members with a port for each process that needs one, after that of the rendezvous; `free` is asked by host.

    A process that the others meet at has that of the rendezvous. Trainers go last, so that servers of all hosts have the
    same ports, as far as these are free; those that need the same one, each at an address of its own, get one that is
    free on all their hosts. Raises LookupError where there is none.
    """
    nodes = tuple(nodes)
    listening = {node.index: meeting if node.launch.meets else meeting + 1 for node in nodes if node.launch.listens}
    alike = {node.index for node in nodes if node.launch.one_port}
    apart = {member.address: member for member in joining if member.node in alike}
    sharing = {member.node: member.host for member in apart.values()} if len(apart) == len(alike) else {}
    given: dict[str, set[int]] = {}
    found: dict[int, tuple[int, ...]] = {}
    if sharing:
        port = _common(meeting + 1, set(sharing.values()), free)
        found = dict.fromkeys(sharing, (port,))
        given = {host: {port} for host in sharing.values()}
    for member in sorted(joining, key=lambda member: "trainer" in member.roles):
        if member.node in listening.keys() - found.keys():
            taken = given.setdefault(member.host, set())
            first = listening[member.node]
            found[member.node] = tuple(_take(taken, first, member.host, free) for _ in range(member.nproc))
    return tuple(replace(member, ports=found.get(member.node, ())) for member in joining)


def _common(first: int, hosts: Iterable[str], free: Callable[[str, int], bool]) -> int:
    for port in range(first, min(first + PORTS, 65536)):
        if all(free(host, port) for host in hosts):
            return port
    raise LookupError(f"no port from {first} on is free on all of {', '.join(sorted(hosts))}")


def _take(taken: set[int], first: int, host: str, free: Callable[[str, int], bool]) -> int:
    for port in range(first, first + PORTS):
        if port not in taken and port < 65536 and free(host, port):
            taken.add(port)
            return port
    raise LookupError(f"no free port on {host} from {first} on")


def port_of(run_id: str, generation: int) -> int:
    """Return the port that a generation tries first: spread, so that runs rarely meet, and reproducible.

    Not by the name of the job: two of one name may begin at the same moment, and neither sees what the other will take.
    """
    digest = sha256(f"{run_id}\n{generation}".encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:4]) % PORTS


def next_port(run_id: str, generation: int, free: Callable[[int], bool]) -> int:
    """Return the first port from `port_of` upwards (around the range) that `free` accepts.

    Raises LookupError when there is none.
    """
    first = port_of(run_id, generation) - FIRST_PORT
    for step in range(PORTS):
        port = FIRST_PORT + (first + step) % PORTS
        if free(port):
            return port
    raise LookupError(f"no free port between {FIRST_PORT} and {FIRST_PORT + PORTS - 1}")
