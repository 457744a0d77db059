"""A plan as JSON and back, so that a supervisor can be started with nothing but a job's name."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.plan.types import Plan

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def dump_plan(plan: Plan) -> bytes:
    """Return `plan` as JSON; the same plan gives the same bytes."""
    return json.dumps(plan_data(plan), indent=1).encode()


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return `plan` as plain data, for JSON output."""
    return asdict(plan)


def load_plan(content: bytes) -> Plan:
    """Return the plan in `content`. Raises ValueError (pydantic's) if it is not one of this version."""
    return _adapter().validate_json(content)


@cache
def _adapter() -> TypeAdapter[Plan]:
    from pydantic import TypeAdapter

    return TypeAdapter(Plan)  # takes long: a plan is written down without
