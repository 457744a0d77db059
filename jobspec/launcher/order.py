"""An order: the generation that launchers run, stop or finish, as the control file and etcd have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.control import age_of
from jobctl.jobspec.launcher.records import changed, record

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.files import Json


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
class AutonomyTerms:
    """What launchers may do by themselves while no supervisor answers, see plan.generation.Alone."""

    restarts: int
    rules: Sequence[Json]
    ports: Tuple[int, int]  # the first and the last port that they may choose
    failures: Sequence[Json]  # those because of which launchers have begun generations, see NodeFailure
    base: Optional[Json]  # number and id of the generation of a supervisor that it goes back to, where that matters
    spares: Sequence[
        Json
    ]  # host, address and port of each host with an idle launcher, to which they may move a lost node
    moved: Optional[Json]  # number and id of the generation in which they moved one last, and `times` that they have
    window: Optional[float]  # seconds for which a failure counts, None for the whole run
    spent: Sequence[float]  # where there is a window: when those failed that `restarts` is less by
    rest: Json

    @classmethod
    def from_json(cls, data: Json) -> AutonomyTerms:
        """Return what an order has."""
        return cls(**known(cls, {"base": None, "spares": [], "moved": None, "window": None, "spent": [], **data}))

    def restarts_left(self, now: float) -> int:
        """Return how many generations launchers may still begin; `now` is in seconds since the epoch."""
        since = now - self.window if self.window is not None else 0.0
        over = sum(1 for at in self.spent if at < since)
        return self.restarts + over - sum(1 for failure in self.failures if failure["at"] >= since)

    def to_json(self) -> Json:
        """Return the order's form."""
        data = flat(self)
        for name in ("base", "spares", "moved", "window", "spent"):
            if not data[name]:
                del data[name]
        return data


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
    moves: Optional[Json]  # where nodes may still run by an older order, see plan.generation.Moves
    rest: Json

    @classmethod
    def from_json(cls, data: Json) -> Order:
        """Return the order that a control file has. Raises KeyError, TypeError or ValueError if it has none."""
        alone, rendezvous = data.get("alone"), data["rendezvous"]
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
            autonomy=AutonomyTerms.from_json(alone) if alone else None,
            exit_code=data.get("exit_code"),
            why=data.get("why"),
            moves=data.get("moves"),
            rest={name: value for name, value in data.items() if name not in cls.__annotations__ and name != "alone"},
        )

    def to_json(self) -> Json:
        """Return the form that `from_json` reads."""
        data = flat(self)
        del data["autonomy"]
        for name in ("on_failure", "exit_code", "why", "moves"):
            if data[name] is None:
                del data[name]
        data.update(
            members=[flat(member) for member in self.members],
            rendezvous=dict(vars(self.rendezvous)),
            alone=self.autonomy.to_json() if self.autonomy else None,
        )
        return data

    @property
    def id(self) -> str:
        """The id of the generation."""
        return self.rendezvous.id

    @property
    def age(self) -> Tuple[Any, ...]:
        """What grows with every order."""
        base = None if self.base is None else (self.base["number"], self.base["id"])
        moved = self.autonomy.moved if self.autonomy is not None else None
        times = moved["times"] if moved is not None else 0
        return age_of(self.began, (self.number, self.id), base, self.command, times)

    @property
    def base(self) -> Optional[Json]:
        """Number and id of the generation that it goes back to, where launchers on hosts may begin some."""
        return self.autonomy.base if self.autonomy is not None else None

    @property
    def lease_began(self) -> Json:
        """Number and id of the generation with which the lease in it began."""
        moved = self.autonomy.moved if self.autonomy is not None else None
        return moved or self.base or {"number": self.number, "id": self.id}

    @property
    def lease(self) -> str:
        """The name of the lease in it: launchers that begin one on hosts go on with that of its base, until they move a node."""
        return str(self.lease_began["id"])

    @property
    def is_of_launchers(self) -> bool:
        """Whether launchers on hosts have begun it, or ended it, and not a supervisor or a command."""
        return self.base is not None and (self.base["id"] != self.id or self.why is not None)

    @property
    def has_moved(self) -> bool:
        """Whether launchers have moved nodes since its base."""
        return self.autonomy is not None and self.autonomy.moved is not None

    @property
    def moved(self) -> List[int]:
        """The nodes that are elsewhere than where they may still run by an older order."""
        places = [(place["node"], place["host"]) for place in (self.moves or {}).get("places", ())]
        homes = {member.node: member.host for member in self.members}
        return sorted({node for node, host in places if homes.get(node, host) != host})

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

    def news(self, most: int) -> Json:
        """Return what a launcher with an older order needs to know, with at most so many failures: see `with_news`."""
        data = self.to_json()
        known = ("began", "number", "command", "grace", "rendezvous", "exit_code", "why", "moves")
        failures = self.autonomy.failures[-most:] if self.autonomy else ()
        found = {
            **{name: data[name] for name in known if name in data},
            "failures": [{**failure, "tail": []} for failure in failures],
        }
        if self.autonomy is not None and self.has_moved:
            found["homes"] = [[m.node, m.host, m.address, m.port] for m in self.members]
            found["moved"], found["spares"] = self.autonomy.moved, list(self.autonomy.spares)
        return found

    def with_news(self, news: Json) -> Order:
        """Return the newer order of another launcher: it has the same members. Raises KeyError and similar errors."""
        data = self.to_json()
        homes = {node: (host, address, port) for node, host, address, port in news.get("homes", ())}
        rest = {name: value for name, value in news.items() if name not in ("failures", "moved", "spares", "homes")}
        spares = news.get("spares", data["alone"].get("spares", []))
        data["alone"].update(failures=news["failures"], moved=news.get("moved"), spares=spares)
        order = Order.from_json({**data, **rest})
        return changed(order, members=[member.at(*homes.get(member.node, ())) for member in order.members])


def known(cls: type, data: Json) -> Json:
    """Return the fields of a record from its JSON form, what it does not know as `rest`. Raises KeyError."""
    fields = {name: data[name] for name in cls.__annotations__ if name != "rest"}
    return {**fields, "rest": {name: value for name, value in data.items() if name not in fields}}


def flat(of: Any) -> Json:
    """Return the fields of a record as JSON, with its `rest` among them."""
    data = {**vars(of), **of.rest}
    del data["rest"]
    return data
