"""A plan as JSON and back, so that a supervisor can be started with nothing but a job's name."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from jobctl.jobspec.plan.types import Plan


@cache
def _adapter() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)


def dump_plan(plan: Plan) -> bytes:
    """Return `plan` as JSON; the same plan gives the same bytes."""
    return _adapter().dump_json(plan, indent=1)


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return `plan` as plain data, for JSON output."""
    data: dict[str, Any] = _adapter().dump_python(plan, mode="json")
    return data


def load_plan(content: bytes) -> Plan:
    """Return the plan in `content`. Raises ValueError (pydantic's) if it is not one of this version."""
    return _adapter().validate_json(content)
