"""How a command gets what a process of a node has, on the machine of that node."""

from __future__ import annotations

import sys

from jobctl.jobspec.deploy.model.observed import ObservedNode
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.slurm import slots


def has_terminal() -> bool:
    """Say whether a person types what a command reads, and sees what it prints."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def entering(plan: Plan | None, work: str, node: ObservedNode, pid: int) -> list[str]:
    """Return what stands before a command there. `pid` is the process's number, in its container if it has one."""
    given = plan.slurm if plan else None
    if plan is None or given is None or given.container == "none":
        python = given.python if given else "python3"
        return [python, f"{work}/allocation.py", "enter", "--work", work, "--pid", str(pid), "--"]
    own = f"{work}/hosts/{node.host}/{slots(plan)[node.node]}"
    return ["sh", f"{work}/start.sh", "enter", own, str(pid)]
