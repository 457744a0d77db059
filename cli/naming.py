"""What nodes are called: by their numbers, or by a name where they serve the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobctl.console import Failed

if TYPE_CHECKING:
    from jobctl.jobspec.plan.types import Plan

# Roles of which a job has one node, which is known by that name and not by its number.
SERVICES = ("scheduler",)


def node_number(plan: Plan | None, text: str, among: Iterable[int] | None = None) -> int:
    """Return the number of the node that `--node` names, by number or name; one of `among`, where that is given.

    Ends with 2 if there is none such.
    """
    serving = [node.index for node in plan.nodes if node.role == text] if plan is not None and text in SERVICES else []
    number = serving[0] if serving else int(text) if re.fullmatch("[0-9]{1,9}", text) else None
    known = None if among is None else sorted(among)
    if number is None or (known is not None and number not in known):
        raise Failed(f"the job has no node `{text}`", 2, _nodes(known))
    return number


def _nodes(known: list[int] | None) -> str:
    if not known:
        return "nodes are numbered from 0"
    if known == list(range(len(known))):
        return "its only node is 0" if len(known) == 1 else f"its nodes are 0 to {known[-1]}"
    return f"its nodes are {', '.join(map(str, known))}"
