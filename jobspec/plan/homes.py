"""Where the nodes of a plan are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.plan.types import Plan


def homes_of(plan: Plan | None) -> dict[int, str]:
    """Return the host of each node of a plan, of none if there is no plan."""
    return {node.index: node.host.name for node in plan.nodes} if plan is not None else {}
