"""The two JSON texts that launchers read: `Launch` in their environment, `Generation` in the control file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

from jobctl.jobspec.plan.generation import AutonomyTerms, Generation
from jobctl.jobspec.plan.types import Launch


def launch_json(launch: Launch) -> str:
    """Return what JOBCTL_LAUNCH holds: the fields of `launch`, a Slot as `{"slot": name}`. ASCII only."""
    # What came later has a default: where that holds, the artefact is the one that older versions made.
    names = [name for name, default in _LAUNCH if default is MISSING or getattr(launch, name) != default]
    return "{" + ",".join([f'"{name}":{_of_field(getattr(launch, name))}' for name in names]) + "}"


def control_json(generation: Generation, extra: Mapping[str, Any] | None = None) -> bytes:
    """Return the control file of `generation`; `extra` are further keys, which launchers ignore."""
    data = {**_fields(generation), **(extra or {})}
    return json.dumps(data, default=_fields, sort_keys=True, indent=2).encode() + b"\n"


def handed_over(generation: Generation, extra: Mapping[str, Any] | None = None) -> bytes:
    """Return the control file for a job that may be up by an earlier version, which calls `autonomy` `alone`."""
    terms = generation.autonomy
    return control_json(generation, {**(extra or {}), **({"alone": terms} if terms is not None else {})})


def _fields(value: Any) -> dict[str, Any]:
    # dataclasses.asdict copies deeply, which costs more than all the rest of rendering a node.
    fields = {name: getattr(value, name) for name in value.__slots__}
    # What says nothing is left out, so that what pods were made from stays the same.
    if isinstance(value, AutonomyTerms):
        for name in ("base", "spares", "moved", "window", "spent", "earlier"):
            if not fields[name]:
                del fields[name]
    if isinstance(value, Generation):
        for name in ("moves", "why", "cause", "origin", "longest_lease", "pause"):
            if fields[name] is None:
                del fields[name]
    return fields


_LAUNCH = tuple((field.name, field.default) for field in fields(Launch))
_compact = json.JSONEncoder(default=_fields, separators=(",", ":")).encode
_compact_cached = lru_cache(maxsize=256)(_compact)


def _of_field(value: Any) -> str:
    # Argument vectors and environments are the long fields, and the same on all nodes of a job. Numbers do not
    # go through the cache: it takes 1, 1.0 and True for the same.
    return _compact_cached(value) if isinstance(value, tuple) else _compact(value)
