"""When a job begins again after a failure, and when it gives up."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.files import abridged
from jobctl.jobspec.launcher.network import free_port
from jobctl.jobspec.launcher.pipe import UNSUPERVISED

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

    from jobctl.jobspec.launcher.files import Json
    from jobctl.jobspec.launcher.pipe import Kept
SETTLE = 0.5  # seconds after which a framework launcher's end is believed before its processes' own records
FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0  # seconds before they begin again, without progress in between
PROGRESS_WITHOUT_COUNTER = 60.0  # seconds that a run without a step counter has to last to count as progress


class Failed:
    """A node that has failed, and what the launchers may do about it by themselves: begin the next generation.

    A small part of what supervisors decide (supervise/failures.py): whatever is not plain waits for one.
    """

    def __init__(self, report: Json, launch: Json, now: float) -> None:
        failure = report["failure"]
        self.since = now
        self.proposed: Optional[float] = None
        self.failure = {
            "generation": report["generation"],
            "at": failure["at"],
            "node": launch["node"],
            "host": launch["host"],
            "rank": failure["rank"],
            "exit_code": failure["exit_code"],
            "kind": failure["kind"],
            "progress": report["progress"],
            "ran": max(0.0, failure["at"] - (report["started_at"] or failure["at"])),
            "log": failure["log"],
            "tail": abridged(failure)["tail"],
            "reason": report["reason"],
            "alike": [],
        }

    def waits(self, order: Json, kept: Kept, now: float) -> Optional[str]:
        """Say what is waited for before anything may be begun, None if nothing is."""
        alone = order.get("alone")
        if alone is None or order["command"] != "run":
            return "waits for the supervisor"
        if kept.supervised(now):
            return "leaves it to the supervisor"
        if not kept.has(now):
            return "has no lease, and so begins nothing"
        if kept.gone:
            return "waits for node %s, which has no lease" % ", ".join(map(str, sorted(kept.gone)))
        return None

    def final(self, order: Json) -> Optional[str]:
        """Say why nothing is to be begun any more, None if something is."""
        alone = order["alone"]
        if self.failure["kind"] in ("setup", "start"):
            return "what cannot be started is not retried"
        if len(alone["failures"]) >= alone["restarts"]:
            return "the restarts of `recovery.max_restarts` are used up"
        rule = next((rule for rule in alone["rules"] if self.matches(rule)), None)
        if rule is not None:
            return None if rule["do"] == "restart" else "a rule says not to retry here"
        if any(self.is_repeated(earlier) for earlier in self.fruitless(alone["failures"])):
            return "failed the same way again, before any progress"
        return None

    def end(self, order: Json, why: str) -> Json:
        """Return the order to end the job, because of this failure."""
        code = self.failure["exit_code"] or 1
        # What a signal has ended is started again by the cluster, and this is the end.
        code = code if code < 128 else 1
        return {**order, "command": "finish", "exit_code": code, "why": "%s: %s" % (self.failure["reason"], why)}

    def matches(self, rule: Json) -> bool:
        """Say whether a rule of the spec, or of jobctl's own, is about this failure."""
        if rule["exit"] is not None and rule["exit"] != self.failure["exit_code"]:
            return False
        return rule["log"] is None or any(re.search(rule["log"], line) for line in self.failure["tail"])

    def fruitless(self, failures: Sequence[Json]) -> List[Json]:
        """Return the failures since there was progress, the newest first."""
        found: List[Json] = []
        later = self.failure
        for earlier in reversed(failures):
            if made_progress(later, earlier):
                break
            found.append(earlier)
            later = earlier
        return found

    def is_repeated(self, earlier: Json) -> bool:
        """Say whether the same rank had failed with the same code, by itself."""
        same = all(self.failure[key] == earlier[key] for key in ("rank", "exit_code", "kind"))
        by_itself = self.failure["exit_code"] not in [128 + number for number in (1, 2, 9, 15)]
        return same and by_itself and self.failure["kind"] in ("exit", "signal")

    def delay(self, order: Json) -> float:
        """Return how many seconds to wait first: for the failure that is the cause of others, longer without progress."""
        count = len(self.fruitless(order["alone"]["failures"]))
        return SETTLE if count == 0 else min(FIRST_DELAY * 2.0 ** (count - 1), LONGEST_DELAY)

    def waits_for_etcd(self, now: float) -> bool:
        """Say whether a generation was proposed a moment ago."""
        return self.proposed is not None and now - self.proposed <= UNSUPERVISED

    def successor(self, order: Json) -> Json:
        """Return the generation after `order`, of the same members."""
        number, meeting, alone = order["number"] + 1, order["rendezvous"], order["alone"]
        port = free_port(meeting["address"], meeting["port"] + 1, *alone["ports"])
        name = "%s-%d-%s" % (order["job"], number, os.urandom(4).hex())
        return {
            **order,
            "number": number,
            "grace": 0.0,  # a process whose peer is gone hangs in its collective: it gets no time to end
            "rendezvous": {**meeting, "port": port, "id": name},
            "alone": {**alone, "failures": [*alone["failures"], self.failure]},
        }


def made_progress(failure: Json, last: Json) -> bool:
    """Say whether a generation that ended with `failure` got anywhere since `last`: see supervise/failures.py."""
    if failure["progress"] is None:
        return last["progress"] is None and float(failure["ran"]) >= PROGRESS_WITHOUT_COUNTER
    return bool(failure["progress"] != last["progress"])
