"""What jobctl's objects in a cluster are known by: labels and annotations below its domain.

Until 0.1 they had no domain. Objects of that time are still read, and never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DOMAIN, BEFORE = "jobctl.dev/", "jobctl."  # a mark's prefix, and what it was

JOB, ROLE = "job", "role"  # labels
SPEC, OWNER, FRAMEWORK, SECRETS = "spec", "owner", "framework", "secrets"  # annotations
INPUTS, VERSION = "inputs", "version"  # annotations, as the labels of containers

MANAGED_LABEL, NAME_LABEL, COMPONENT_LABEL = (
    f"app.kubernetes.io/{name}" for name in ("managed-by", "name", "component")
)
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"  # Kueue suspends what has it, until its turn in the queue comes


def mark(name: str) -> str:
    """Return the key of a label or annotation of jobctl's."""
    return f"{DOMAIN}{name}"


def label_of(thing: Mapping[str, Any], name: str) -> str | None:
    """Return the value of a label of jobctl's, None if an object has it neither in today's form nor in the old one."""
    return _value(thing["metadata"].get("labels"), name)


def annotation_of(thing: Mapping[str, Any], name: str) -> str | None:
    """Return the value of an annotation of jobctl's, as `label_of` does."""
    return _value(thing["metadata"].get("annotations"), name)


def _value(found: Mapping[str, str] | None, name: str) -> str | None:
    return (found or {}).get(f"{DOMAIN}{name}", (found or {}).get(f"{BEFORE}{name}"))


def selectors(job: str) -> tuple[str, str]:
    """Return what chooses the objects of a job: those of today, and those of old."""
    return f"{DOMAIN}{JOB}={job}", f"{BEFORE}{JOB}={job}"
