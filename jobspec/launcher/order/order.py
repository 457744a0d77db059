"""An order: the generation that launchers run, stop or finish, as the control file and etcd have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.autonomy_terms import AutonomyTerms, Base
from jobctl.jobspec.launcher.order.control import age_of
from jobctl.jobspec.launcher.order.order_news import Home, OrderNews
from jobctl.jobspec.launcher.records import changed, flat, known, record, with_rest

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

    from jobctl.jobspec.launcher.failure import NodeFailure
    from jobctl.jobspec.launcher.order.autonomy_terms import LastMove
    from jobctl.jobspec.launcher.system.files import Json


# What earlier versions call `autonomy`. jobctl writes both for the launchers of a job that is up, and both are handed on.
EARLIER = "alone"


@record
class Rendezvous:
    """Where the members of a generation meet."""

    address: str
    port: int
    id: str

    @property
    def place(self) -> str:
        """address:port; an IPv6 address gets brackets."""
        return "%s:%s" % ("[%s]" % self.address if ":" in self.address else self.address, self.port)


@record
class Member:
    """A node's place in a generation."""

    node: int
    rank: int
    roles: Sequence[str]
    host: str
    address: str
    nproc: int
    port: Optional[int]  # where its launcher hears those of others, None while jobctl does not know that
    ports: Sequence[int]  # those of its processes, where they have some
    rest: Json

    @classmethod
    def from_json(cls, data: Json) -> Member:
        """Return the member that an order has."""
        return cls(**known(cls, {"port": None, "ports": [], **data}))

    def at(self, host: Optional[str] = None, address: str = "", port: Optional[int] = None) -> Member:
        """Return the same member on another host; without one, on the same."""
        return self if host is None else changed(self, host=host, address=address, port=port)


@record
class OldPlace:
    """A host that a node was moved away from while nobody could look there."""

    node: int
    host: str
    rest: Json


@record
class Moves:
    """Where nodes may still run by an older order, of so many launchers: see plan.generation.Moves."""

    places: Sequence[OldPlace]
    voters: int
    rest: Json

    @classmethod
    def from_json(cls, data: Json) -> Moves:
        """Return what an order has."""
        return changed(with_rest(cls, data), places=[with_rest(OldPlace, place) for place in data["places"]])

    def to_json(self) -> Json:
        """Return the order's form."""
        return {**flat(self), "places": [flat(place) for place in self.places]}


@record
class Order:
    """What a launcher has to do: `run` a generation, `stop` its processes, or `finish` and end itself.

    Launchers hand orders on to each other and to jobctl, so `rest` keeps the keys that this launcher does not know.
    """

    job: str
    run_id: str
    number: int
    command: str
    grace: float  # seconds between SIGTERM and SIGKILL for the processes of an earlier generation
    members: List[Member]
    rendezvous: Rendezvous
    began: float  # when the job was brought up from nothing: numbers begin at 1 again then
    host_timeout: float
    checkpoint_dir: Optional[str]
    on_failure: Optional[str]  # `exit`: the launcher ends when its node has failed, as nobody begins a next generation
    autonomy: Optional[AutonomyTerms]
    exit_code: Optional[int]  # that of launchers which end, when launchers themselves end the job …
    why: Optional[str]  # … and the reason
    moves: Optional[Moves]  # where nodes may still run by an older order
    longest_lease: Optional[float]  # the `host_timeout` of older orders, where that is longer
    pause: Optional[int]  # how often a command has stopped it for a change since its base, see Generation
    rest: Json

    @classmethod
    def from_json(cls, data: Json) -> Order:
        """Return the order that a control file has. Raises KeyError, TypeError or ValueError if it has none."""
        autonomy, rendezvous = data.get("autonomy") or data.get(EARLIER), data["rendezvous"]
        return cls(
            job=data["job"],
            run_id=data["run_id"],
            number=int(data["number"]),
            command=data["command"],
            grace=float(data["grace"]),
            members=[Member.from_json(member) for member in data["members"]],
            rendezvous=Rendezvous(rendezvous["address"], rendezvous["port"], rendezvous["id"]),
            began=float(data.get("began", 0.0)),
            host_timeout=float(data.get("host_timeout", 30.0)),
            checkpoint_dir=data.get("checkpoint_dir"),
            on_failure=data.get("on_failure"),
            autonomy=AutonomyTerms.from_json(autonomy) if autonomy else None,
            exit_code=data.get("exit_code"),
            why=data.get("why"),
            moves=Moves.from_json(data["moves"]) if data.get("moves") is not None else None,
            longest_lease=data.get("longest_lease"),
            pause=data.get("pause"),
            rest={name: None if name == EARLIER else data[name] for name in data if name not in cls.__annotations__},
        )

    def to_json(self) -> Json:
        """Return the form that `from_json` reads."""
        data = flat(self)
        data.update(
            moves=self.moves and self.moves.to_json(),
            members=[flat(member) for member in self.members],
            rendezvous=dict(vars(self.rendezvous)),
            autonomy=self.autonomy.to_json() if self.autonomy else None,
        )
        if EARLIER in data:
            data[EARLIER] = data["autonomy"]
        for name in ("on_failure", "exit_code", "why", "moves", "longest_lease", "pause"):
            if data[name] is None:
                del data[name]
        return data

    @property
    def lease_limit(self) -> float:
        """For how many seconds a launcher may hold a lease of it, or of an older order that it has not left yet."""
        return max(self.host_timeout, self.longest_lease or 0.0)

    @property
    def id(self) -> str:
        """The id of the generation."""
        return self.rendezvous.id

    @property
    def age(self) -> Tuple[Any, ...]:
        """What grows with every order."""
        base = None if self.base is None else (self.base.number, self.base.id)
        moved = self.autonomy.moved if self.autonomy is not None else None
        times = moved.times if moved is not None else 0
        return age_of(self.began, (self.number, self.id), base, self.command, times, self.pause)

    @property
    def base(self) -> Optional[Base]:
        """The generation that it goes back to, where launchers may begin some; None with etcd."""
        return self.autonomy.base if self.autonomy is not None else None

    @property
    def failures(self) -> Sequence[NodeFailure]:
        """The failures because of which launchers have begun generations, the oldest first."""
        return self.autonomy.failures if self.autonomy is not None else ()

    def as_base(self) -> Order:
        """Return an order that names itself as its base: a coordinator of an earlier version does not."""
        if self.autonomy is None or self.autonomy.base is not None:
            return self
        return changed(self, autonomy=changed(self.autonomy, base=Base(self.number, self.id, {})))

    @property
    def lease_began(self) -> Union[Base, LastMove]:
        """The generation with which the lease in it began."""
        moved = self.autonomy.moved if self.autonomy is not None else None
        return (self.base and moved) or self.base or Base(self.number, self.id, {})  # with etcd, each has a lease

    @property
    def lease(self) -> str:
        """The name of the lease in it: launchers that begin one on hosts go on with that of its base, until they move a node."""
        return self.lease_began.id

    @property
    def is_of_launchers(self) -> bool:
        """Whether launchers have begun it, or ended it, and not a supervisor or a command; with etcd that is not known."""
        begun = self.base is not None and self.base.id != self.id and self.command == "run"
        return begun or (self.base is not None and self.why is not None)

    @property
    def is_paused(self) -> bool:
        """Whether a command has stopped it for a change: then launchers may go on with it, if the change does not come."""
        return self.pause is not None and self.command == "stop" and self.base is not None

    @property
    def why_stopped(self) -> str:
        """Why processes end because of it, where it is a stop."""
        return self.why or ("stopped for a change" if self.is_paused else "told to stop")

    @property
    def has_moved(self) -> bool:
        """Whether launchers have moved nodes since its base."""
        return self.autonomy is not None and self.autonomy.moved is not None

    @property
    def moved(self) -> List[int]:
        """The nodes that are elsewhere than where they may still run by an older order."""
        homes = {member.node: member.host for member in self.members}
        return sorted({place.node for place in self.old_places if homes.get(place.node, place.host) != place.host})

    @property
    def old_places(self) -> List[OldPlace]:
        """Where nodes may still run by an older order."""
        return list(self.moves.places) if self.moves is not None else []

    @property
    def nodes(self) -> List[int]:
        """The nodes of all members."""
        return [member.node for member in self.members]

    def of_role(self, role: Optional[str]) -> List[Member]:
        """Return the members with a role, in the order of their ranks."""
        return sorted((m for m in self.members if role in m.roles), key=lambda m: m.rank)

    def endpoints(self, role: Optional[str]) -> List[str]:
        """Return address:port of all processes of a role, in the order of their ranks."""
        return ["%s:%d" % (m.address, port) for m in self.of_role(role) for port in m.ports or ()]

    def member(self, node: int) -> Optional[Member]:
        """Return the entry of a node, None if it does not take part."""
        return next((member for member in self.members if member.node == node), None)

    def at(self, addresses: Dict[str, str]) -> Order:
        """Return the same order with other addresses for these, of the members and of the rendezvous."""
        members = [changed(m, address=addresses.get(m.address, m.address)) for m in self.members]
        address = addresses.get(self.rendezvous.address, self.rendezvous.address)
        return changed(self, members=members, rendezvous=changed(self.rendezvous, address=address))

    def news(self) -> OrderNews:
        """Return what a launcher with an older order needs to know: see `with_news`."""
        data, terms = self.to_json(), self.autonomy.abridged() if self.autonomy is not None else None
        named = ("began", "number", "command", "grace", "rendezvous", "exit_code", "why", "moves")
        news = OrderNews(
            order={**{name: data[name] for name in named if name in data}, "pause": self.pause},
            failures=[changed(failure, tail=[]) for failure in terms.failures] if terms is not None else [],
            earlier=terms.earlier if terms is not None else None,
        )
        if terms is not None and terms.moved is not None:
            news.homes = [Home(m.node, m.host, m.address, m.port) for m in self.members]
            news.moved, news.spares = terms.moved, terms.spares
        return news

    def with_news(self, news: OrderNews) -> Order:
        """Return the newer order of another launcher: it has the same members. Raises KeyError and similar errors."""
        if self.autonomy is None:
            raise ValueError("launchers begin nothing by themselves in this order")
        order = Order.from_json({**self.to_json(), **news.order})
        spares = self.autonomy.spares if news.spares is None else news.spares
        homes = {home.node: home for home in news.homes or ()}
        return changed(
            order,
            autonomy=changed(
                self.autonomy, failures=news.failures, earlier=news.earlier, moved=news.moved, spares=spares
            ),
            members=[m.at(*homes[m.node].place) if m.node in homes else m for m in order.members],
        )
