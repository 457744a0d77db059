"""What the processes of a node use of their host. Pure."""

from __future__ import annotations

from jobctl.jobspec.deploy.model.untrusted import as_number
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """`cpu_seconds` are those of all cores so far, `memory` is in bytes; None is what nobody tells."""

    cpu_seconds: float | None
    memory: float | None


def parse_stats(stats: object) -> NodeUsage:
    """Return what an engine's statistics of a container say; memory is counted without the cache of files, as `docker stats` does."""
    spent = _number(stats, "cpu_stats", "cpu_usage", "total_usage")
    memory = _number(stats, "memory_stats", "usage")
    version_2 = _number(stats, "memory_stats", "stats", "inactive_file")
    cache = version_2 if version_2 is not None else _number(stats, "memory_stats", "stats", "total_inactive_file")
    if memory is not None and cache is not None and cache < memory:
        memory -= cache
    return NodeUsage(None if spent is None else spent / 1e9, memory)


def _number(value: object, *keys: str) -> float | None:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    number = as_number(value)
    return None if number is None else float(number)
