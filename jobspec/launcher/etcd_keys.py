"""What a job has in etcd, below its prefix."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.etcd import of64
from jobctl.jobspec.launcher.lease import NOBODY
from jobctl.jobspec.launcher.order import Order
from jobctl.jobspec.launcher.session_messages import NodeCourse

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional

    from jobctl.jobspec.launcher.files import Json


def key_for(prefix: str, node: int, host: str) -> str:
    """Return the key of a node; NOBODY is the idle launcher of a host."""
    return "%s/spares/%s" % (prefix, host) if node == NOBODY else "%s/nodes/%d" % (prefix, node)


class JobKeys:
    """The keys of a job, as they were read at once."""

    def __init__(self, prefix: str, found: Iterable[Json]) -> None:
        self.prefix = prefix
        self.items: Dict[str, Json] = {of64(item["key"]): item for item in found}
        there = self.items.get(prefix + "/generation")
        self.revision = str(there["mod_revision"]) if there else "0"
        self.order = Order.from_json(json.loads(of64(there["value"]))) if there else None
        self.nodes: List[int] = list(self.order.nodes) if self.order else []

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
    def spares(self) -> List[str]:
        """The hosts with an idle launcher."""
        start = key_for(self.prefix, NOBODY, "")
        return sorted(key[len(start) :] for key in self.items if key.startswith(start))


def course_in(item: Optional[Json]) -> Optional[NodeCourse]:
    """Return what the key of a node says of it; None for nothing, also where an earlier version has written it."""
    try:
        return NodeCourse.from_json(json.loads(of64(item["value"]))["course"]) if item is not None else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def failed_in(courses: Dict[int, NodeCourse]) -> List[int]:
    """Return the nodes that say that they have failed."""
    return [node for node, course in courses.items() if course.failed is not None]
