"""What a launcher tells of its node, and of what launchers have decided: as fields; jobctl puts them into words."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.report.event_log import EventLog

if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional

    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.report.node_report import EventStamp, NodeReport
    from jobctl.jobspec.launcher.report.stragglers import SlowProcess
    from jobctl.jobspec.launcher.system.files import Json
# States of a node that are told, in the words of `status`; before them it waits or begins.
TOLD = {"running": "running", "failed": "failed", "fenced": "fenced", "succeeded": "exited", "stopped": "exited"}


class Story:
    """Writes down what happens to one node, each thing once, as its report and the newest order tell it.

    `own` is what is this machine's own in a folder that all see, `…/MACHINE/SLOT`: there, hosts have the names of nodes.
    """

    def __init__(self, launch: Launch, folder: str, own: Optional[str] = None) -> None:
        self.host = os.path.basename(os.path.dirname(own)) if own is not None else launch.host
        # The folder of a pod goes with it, and an idle launcher has no node.
        untold = (launch.peer_port is not None and own is None) or launch.node < 0
        self.log: Optional[EventLog] = None if untold else EventLog(folder)

    @property
    def stamp(self) -> Optional[EventStamp]:
        """What says whether there is more to read, None while there is nothing."""
        return self.log.stamp if self.log is not None and self.log.events else None

    def look(self, report: NodeReport, order: Optional[Order]) -> Optional[EventStamp]:
        """Write down what is new; return the stamp."""
        if self.log is None or order is None:
            return self.stamp
        now = time.time()
        found: List[Json] = []
        begun = (order.began, order.number) == (report.epoch, report.generation)
        if order.why is not None or (begun and report.state != "waiting"):
            at = now if order.why is not None else report.started_at or now
            found += told_by_order(order, at)
        if report.epoch == order.began and report.generation:
            found += self.told_by_report(report, order, now)
        self.log.add(found)
        return self.stamp

    def waits(self, order: Optional[Order], reason: str, nodes: List[int]) -> None:
        """Write down what launchers wait for before they go on; `nodes` are those that are not heard."""
        if self.log is not None and order is not None:
            waiting = {"reason": reason, "nodes": nodes, "lasting": True}
            self.log.add([{**about(order, "waiting", time.time()), **waiting}])

    def names_slow(self, order: Order, slow: SlowProcess) -> bool:
        """Write down that a process makes the others wait, once in a generation for its node; say whether that is new."""
        member = order.member(slow.node)
        times = {"seconds": round(slow.seconds, 6), "median": round(slow.median, 6)}
        about_it = {"node": slow.node, "rank": slow.rank, "host": member.host if member is not None else None}
        return self.log is not None and self.log.add([{**about(order, "straggler", time.time()), **about_it, **times}])

    def told_by_report(self, report: NodeReport, order: Order, now: float) -> Iterator[Json]:
        """Yield what has become of the node in the generation that it has begun last."""
        of = {
            **about(order, "node", now),
            "generation": report.generation,
            "node": report.node,
            "host": self.host,
        }
        known = {"progress": report.progress, "ranks": [process.rank for process in report.processes]}
        state = TOLD.get(report.state)
        if state is not None:
            at = now if state == "running" else report.finished_at or now
            how = {"state": state, "exit_code": report.exit_code, "reason": report.reason}
            yield {**of, **known, **how, "time": at}
        if report.process_restarts:
            again = {
                "event": "process-restarted",
                "process_restarts": report.process_restarts,
                "reason": report.restart_reason,
            }
            yield {**of, **known, **again}
        if report.start is not None and report.generation == order.number:
            way = {**vars(report.start), **why_begun(order), "members": order.nodes}
            yield {**of, **way, "event": "generation-begun"}


def about(order: Order, event: str, now: float) -> Json:
    """Return what each event has."""
    return {"event": event, "time": now, "began": order.began, "generation": order.number}


def why_begun(order: Order) -> Json:
    """Return who has begun an order, and why: launchers because of a failure, or somebody who says so in it.

    The coordinator of an allocation counts as its supervisor.
    """
    failures = [failure for failure in order.failures if failure.generation == order.number - 1]
    if not failures and order.is_of_launchers:
        return {"by": "launchers", "cause": "the command that stopped the job for a change was cut off"}
    if not failures:
        return {"by": "supervisor", "cause": order.rest.get("cause")}
    failure = failures[-1]
    cause = "node %d: %s (the launchers agreed)" % (failure.node, failure.reason)
    return {"by": "launchers" if order.base is not None else "etcd", "cause": cause}


def told_by_order(order: Order, now: float) -> Iterator[Json]:
    """Yield what led to an order: failures, the generation itself, nodes that have moved, or that the job has failed."""
    for failure in order.failures:
        known = {
            name: getattr(failure, name) for name in ("node", "host", "rank", "exit_code", "kind", "progress", "log")
        }
        told = {**about(order, "failure", failure.at), **known, "tail": list(failure.tail), "reason": failure.reason}
        yield {**told, "generation": failure.generation}
    homes: Dict[str, str] = {str(member.node): member.host for member in order.members}
    if order.why is not None:
        yield {**about(order, "failed", now), "reason": order.why}
        return
    members = {"members": order.nodes, "hosts": homes, "port": order.rendezvous.port}
    yield {**about(order, "generation", now), **members, **why_begun(order)}
    if order.autonomy is not None and order.autonomy.moved is not None and order.autonomy.moved.id == order.id:
        for place in order.old_places:
            moved = {"node": place.node, "from": place.host, "host": homes.get(str(place.node))}
            if moved["host"] not in (None, place.host):
                yield {**about(order, "moved", now), **moved}
