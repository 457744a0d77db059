"""Plans, generations and similar values as JSON and back: a supervisor can be started with nothing but a job's name."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from jobctl.jobspec.plan.types import Plan

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def dump_plan(plan: Plan) -> bytes:
    """Return `plan` as JSON; the same plan gives the same bytes."""
    return json.dumps(plan_data(plan), indent=1).encode()


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return `plan` as plain data, for JSON output."""
    return asdict(plan)


def load_plan(content: bytes) -> Plan:
    """Return the plan in `content`. Raises ValueError (pydantic's) if it is not one of this version."""
    adapter: TypeAdapter[Plan] = _adapter(Plan)
    return adapter.validate_json(content)


def load(kind: type[T], data: object) -> T:
    """Return plain data as the dataclass `kind`; keys that it does not have are left out.

    Raises ValueError, which says in a few words what cannot be read.
    """
    from pydantic import ValidationError

    key: Any = kind  # mypy takes no type variable for hashable
    adapter: TypeAdapter[T] = _adapter(key)
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"`{where}`: {first['msg']}" if where else first["msg"]) from error


_building = threading.Lock()


def _adapter(kind: Any) -> TypeAdapter[Any]:
    with _building:  # the answers of many hosts come at the same time, and `cache` alone lets each of them build one
        return _built_adapter(kind)


@cache
def _built_adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)  # takes long: a plan is written down without
