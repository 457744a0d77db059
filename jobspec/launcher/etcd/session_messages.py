"""What the launcher and its EtcdSession say to each other by their pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.report.progress import Headway

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.system.files import Json


@record
class NodeCourse:
    """How far a node has come in a generation, and whether it has failed there."""

    generation: str  # its id
    failed: Optional[Tuple[str, float]]  # how, and when
    headway: Headway
    done: bool = False  # whether it has ended well there

    def to_json(self) -> Json:
        """Return its JSON form."""
        failed = None if self.failed is None else list(self.failed)
        return {**vars(self), "failed": failed, "headway": self.headway.to_json()}

    @classmethod
    def from_json(cls, data: Json) -> NodeCourse:
        """Return what `to_json` has written. Raises KeyError, TypeError or ValueError for anything else."""
        failed = None
        if data["failed"] is not None:
            kind, at = data["failed"]
            failed = str(kind), float(at)
        return cls(data["generation"], failed, Headway.from_json(data["headway"]), bool(data.get("done")))


@record
class SessionRequest:
    """What the launcher asks for: one of these at a time."""

    proposal: Optional[Order] = None  # an order that is to become the job's, if it is the newest …
    after: Optional[str] = None  # … and, where this is set, if that generation is the job's and runs
    leave: bool = False  # end, and give the lease back
    course: Optional[NodeCourse] = None  # how this node does, for all others to know
    node: Optional[int] = None  # the node whose key it keeps from now on, -1 for that of an idle launcher
    release: bool = False  # give up the key of a node that the order has elsewhere, as nothing runs any more

    def to_json(self) -> Json:
        """Return it without what is not set."""
        data = {name: value for name, value in vars(self).items() if value or name == "node"}
        data.update({name: data[name].to_json() for name in ("proposal", "course") if name in data})
        return data

    @classmethod
    def from_json(cls, data: Json) -> SessionRequest:
        """Return the request that `to_json` has written."""
        read = {"proposal": Order.from_json, "course": NodeCourse.from_json}
        return cls(**{**data, **{name: read[name](data[name]) for name in read.keys() & data.keys()}})


@record
class SessionReport:
    """What the process that keeps the lease reports after each round."""

    at: Optional[float]  # from when on the lease counts, None without one
    agreed: Optional[str]  # the id of the generation that etcd has
    gone: Dict[int, float]  # the members that have no lease, and for how many seconds
    ttl: float  # seconds that a lease lasts
    problem: Optional[str] = None  # what is wrong, for people
    over: bool = False  # whether the lease has ended, so that the node may run elsewhere
    order: Optional[Order] = None  # the job's order, when it has changed
    node: Optional[int] = None  # whose lease it is
    spares: Sequence[str] = ()  # the hosts with an idle launcher
    courses: Optional[Dict[int, NodeCourse]] = None  # how nodes do in the generation, once one of them has failed
    known: bool = False  # whether etcd has answered since this process began
    ended: Optional[str] = None  # the id of etcd's generation, if all nodes have ended well there

    def to_json(self) -> Json:
        """Return its JSON form."""
        gone = {str(node): seconds for node, seconds in self.gone.items()}
        order = self.order and self.order.to_json()
        courses = {str(node): course.to_json() for node, course in (self.courses or {}).items()}
        return {**vars(self), "gone": gone, "order": order, "courses": courses}

    @classmethod
    def from_json(cls, data: Json) -> SessionReport:
        """Return the report that `to_json` has written."""
        gone = {int(node): seconds for node, seconds in data["gone"].items()}
        order = data["order"] and Order.from_json(data["order"])
        courses = {int(node): NodeCourse.from_json(course) for node, course in data["courses"].items()} or None
        spares = tuple(data["spares"])
        return cls(**{**data, "gone": gone, "order": order, "courses": courses, "spares": spares})
