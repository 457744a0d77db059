"""The writer of a pod's log, in the words of `jobctl logs`: its node, its rank, the name of the log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jobctl.jobspec.deploy.kubernetes.job_state import numbers
from jobctl.jobspec.deploy.kubernetes.pods import Pod
from jobctl.jobspec.deploy.logs.reader import last_state
from jobctl.jobspec.deploy.model.log_lines import Line
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass

NOTES = "launcher.log"  # of what no process has printed


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a pod's log, in the words of `logs`. `rank` is None where several processes write it.

    In `forwarded` logs our launcher says before each line which of its processes, `nproc` of them, has printed it.
    """

    node: int
    rank: int | None
    log: str
    nproc: int = 1
    forwarded: bool = False

    def line(self, at: float, text: bytes) -> Line:
        """Return a line of the log."""
        text = last_state(text)
        if not self.forwarded:
            return Line(at, self.node, self.rank, 0, self.log, text)
        found = _FORWARDED.match(text)
        if found is None:
            return Line(at, self.node, None, 0, NOTES, text)
        role, rank = found.group(1).decode(), int(found.group(2))
        name = "worker" if role == "rank" else role
        return Line(at, self.node, rank, 0, f"{name}log.{rank % self.nproc}", found.group(3))


# How the launcher begins each line that it forwards of its processes (LogForwarder in launcher/process/log_files.py).
_FORWARDED = re.compile(rb"(rank|server|scheduler)(\d{1,9}) \| (.*)", re.S)


def writers(pods: Sequence[Pod], plan: Plan | None) -> Mapping[str, Writer]:
    """Return who writes the log of each pod, by the pod's uid: the only process of a pod has a rank."""
    index = numbers(pods, plan)
    planned = {node.index: node for node in plan.nodes} if plan else {}
    found = {}
    for pod in pods:
        number = index[pod.role, pod.number]
        node = planned.get(number)
        if pod.launcher:
            found[pod.uid] = Writer(number, None, "", node.launch.nproc if node else 1, forwarded=True)
        elif node is not None and node.launch.nproc == 1:
            found[pod.uid] = Writer(number, pod.number, f"{node.launch.log_name}.0")
        else:
            found[pod.uid] = Writer(number, None, f"{pod.role}.log")
    return found
