"""What a job has in etcd, below its prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.etcd.client import of64, text64
from jobctl.jobspec.launcher.etcd.session_messages import NodeCourse
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.lease import NOBODY
from jobctl.jobspec.launcher.system.files import parse_json

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional

    from jobctl.jobspec.launcher.etcd.client import Etcd
    from jobctl.jobspec.launcher.system.files import Json


def key_for(prefix: str, node: int, host: str) -> str:
    """Return the key of a node; NOBODY is the idle launcher of a host."""
    return "%s/spares/%s" % (prefix, host) if node == NOBODY else "%s/nodes/%d" % (prefix, node)


def over_key(prefix: str) -> str:
    """Return the key that says in which generation all nodes have ended well: nothing of that begins again."""
    return "%s/over" % prefix


def has_place(order: Order, node: int, host: str) -> bool:
    """Return whether a launcher on this host has a place in an order: that of its node, or that of an idle one."""
    if node == NOBODY:
        return all(member.host != host for member in order.members)
    return any(member.node == node and member.host == host for member in order.members)


def put_if(etcd: Etcd, condition: Json, key: str, value: str, lease: Optional[str] = None) -> None:
    """Write a key if a condition on a key holds, that of this one unless it names another. Raises EtcdError."""
    put = {"key": text64(key), "value": text64(value), **({} if lease is None else {"lease": lease})}
    etcd.call("/v3/kv/txn", compare=[{"key": put["key"], **condition}], success=[{"request_put": put}])


def remove_rest(etcd: Etcd, prefix: str) -> None:
    """Remove all that a job has in etcd, unless a launcher of a node is still there. Raises EtcdError."""
    start, end = text64(prefix + "/nodes/"), text64(prefix + "/nodes0")  # the character after the slash
    if not etcd.call("/v3/kv/range", key=start, range_end=end).get("kvs"):
        etcd.call("/v3/kv/deleterange", key=text64(prefix + "/"), range_end=text64(prefix + "0"))


class JobKeys:
    """The keys of a job, as they were read at once."""

    def __init__(self, prefix: str, found: Iterable[Json]) -> None:
        self.prefix = prefix
        self.items: Dict[str, Json] = {of64(item["key"]): item for item in found}
        there = self.items.get(prefix + "/generation")
        revision = str(there["mod_revision"]) if there else "0"
        # That the generation is still the one that was read.
        self.unchanged: Json = {"key": text64(prefix + "/generation"), "target": "MOD", "mod_revision": revision}
        self.order = Order.from_json(parse_json(of64(there["value"]))) if there else None
        self.nodes: List[int] = list(self.order.nodes) if self.order else []
        over = self.items.get(over_key(prefix))
        self.over = parse_json(of64(over["value"]))["generation"] if over else None

    def of_node(self, node: int) -> Optional[Json]:
        """Return the key of a node, None while nobody has it."""
        return self.items.get(key_for(self.prefix, node, ""))

    @property
    def missing(self) -> List[int]:
        """The members that have no lease."""
        return [node for node in self.nodes if self.of_node(node) is None]

    @property
    def courses(self) -> Dict[int, NodeCourse]:
        """What the members say of themselves in the generation that is there, those that say something."""
        found = {node: course_in(self.of_node(node)) for node in self.nodes}
        id_ = self.order.id if self.order is not None else None
        return {node: one for node, one in found.items() if one is not None and one.generation == id_}

    @property
    def are_done(self) -> bool:
        """Whether all members say that they have ended well in the generation that is there."""
        found = self.courses
        return bool(self.nodes) and all(node in found and found[node].done for node in self.nodes)

    @property
    def is_over(self) -> bool:
        """Whether that was so at any time: launchers that know it leave, and take their keys along."""
        return self.order is not None and self.order.command == "run" and self.over == self.order.id

    @property
    def spares(self) -> List[str]:
        """The hosts with an idle launcher."""
        start = key_for(self.prefix, NOBODY, "")
        return sorted(key[len(start) :] for key in self.items if key.startswith(start))


def course_in(item: Optional[Json]) -> Optional[NodeCourse]:
    """Return what the key of a node says of it; None for nothing, also where an earlier version has written it."""
    try:
        return NodeCourse.from_json(parse_json(of64(item["value"]))["course"]) if item is not None else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def failed_in(courses: Dict[int, NodeCourse]) -> List[int]:
    """Return the nodes that say that they have failed."""
    return [node for node, course in courses.items() if course.failed is not None]
