"""Mounts of a container, without those that come twice: engines refuse a container with two mounts at one place."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import normpath

from jobctl.jobspec.plan.types import Mount


def one_at_a_place(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    """Return `mounts`, of those at one place the first: a user may name what jobctl mounts too, and write it in another way."""
    found: dict[str, Mount] = {}
    for mount in mounts:
        found.setdefault(normpath(mount.target), mount)
    return tuple(found.values())
