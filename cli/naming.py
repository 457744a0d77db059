"""What nodes are called: by their numbers, or by a name where they serve the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.plan.types import Plan

# Roles of which a job has one node, which is known by that name and not by its number.
SERVICES = ("scheduler",)


def by_name(plan: Plan | None, node: str | None) -> str | None:
    """Return what `--node` says as a number, where it is the name of a node; anything else as it is."""
    nodes = plan.nodes if plan is not None and node in SERVICES else ()
    return next((str(one.index) for one in nodes if one.role == node), node)
