"""What batch scripts ask Slurm for while they run: the names of their nodes, and a port that is theirs."""

from __future__ import annotations

import re

# Stands for a node of the allocation while a script is read. It never becomes a host: jobctl knows the nodes itself.
NODE = "slurm-allocated-node-"
NODE_LIST = "SLURM_JOB_NODELIST"

_NAMES = re.compile(r"\bscontrol\s+(show\s+host\w*|getaddrs)\b")
_OF_NODE = re.compile(r"\bscontrol\b.*\b(BatchHost|Node(List|Addr|HostName))\b", re.DOTALL)
_COUNT = re.compile(r"\|\s*(wc\s+(-[lw]|--lines|--words)|grep\s+-c)\b")
# Joined with commas, of which nothing takes one name out again.
_LISTED = re.compile(r"\|\s*(tr|paste)\s[^|]*,(?!.*\|\s*(awk\b|cut\b[^|]*\s-f))", re.DOTALL)
_FIRST = re.compile(r"\bhead\b|\btail\b|(?<!show\s)\bhostname\b|\bgetent\b")
_ONE = re.compile(rf"{_FIRST.pattern}|\bsed\b|\bawk\b|\bcut\b")
_HOST = re.compile(rf"\bhostname\b|\bgetent\b.*{NODE}|\bnslookup\b|\bhost\b")
_JOB = re.compile(r"\$\{?SLURM_JOB_?ID\b|\bSLURM_JOB_?ID\b")
# What Slurm tells each task of a step, and jobctl keeps from processes: a step of its own has one task on each node.
_OF_TASK = re.compile(r"\bSLURM_(?:PROCID|LOCALID|NODEID|NTASKS\w*|NPROCS|GTIDS|STEP_\w+|TASKS?_\w+)\b")


def of_task(text: str) -> list[str]:
    """Return the variables of a task that a script reads by itself."""
    return sorted(set(_OF_TASK.findall(text)))


def node(number: int) -> str:
    return f"{NODE}{number}"


def printed(command: str, nodes: int) -> str | None:
    """Return what a command in `$(…)` stands for in a job of Slurm; None if it is not one of the usual ones.

    A port made of the job's number is 0, which leaves the choice to jobctl.
    """
    if _NAMES.search(command):
        if _COUNT.search(command):
            return str(nodes)
        every = [node(number) for number in range(nodes)]
        if _LISTED.search(command) and not _FIRST.search(command):
            return ",".join(every)
        return every[0] if _ONE.search(command) else " ".join(every)
    if re.search(r"\bscontrol\b", command):
        return node(0) if _OF_NODE.search(command) else None
    if _HOST.search(command):
        return node(0)
    if _JOB.search(command) and re.search(r"\bexpr\b|\btail\b|%|\bcut\b", command):
        return "0"
    return None


def of_job(text: str) -> bool:
    """Say whether a sum is made of the job's number, as ports are."""
    return _JOB.search(text) is not None
