"""What is applied for a plan: the artefacts that `render` writes, with what only `up` knows filled in, in memory."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from jobctl.jobspec.deploy.kubernetes.kinds import BUILT_IN, JOB, MAIN, SECRET, Kind, Object
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.artefact import render

FOLDER = "manifests/"


def manifests(plan: Plan) -> list[Object]:
    """Return the objects of a plan in the order in which they are applied, as `render` writes them."""
    import yaml

    artefacts = [artefact for artefact in render(plan, first_generation(plan)) if artefact.path.startswith(FOLDER)]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the launcher is a long text
    return [yaml.load(artefact.content, loader) for artefact in sorted(artefacts, key=lambda one: one.path)]


def is_secrets(manifest: Mapping[str, Any]) -> bool:
    """Say whether a manifest is that of the job's secrets, which has no values before `up`."""
    return bool(manifest["kind"] == SECRET.kind and manifest["apiVersion"] == SECRET.api_version)


def with_secrets(objects: Sequence[Object], secrets: Mapping[str, str]) -> list[Object]:
    """Return the objects with the values of secrets, which are nowhere but in memory and in the cluster."""
    return [{**thing, "data": _data(secrets)} if is_secrets(thing) else thing for thing in objects]


def with_known_secrets(manifest: Object, now: Mapping[str, Any], secrets: Mapping[str, str]) -> Object:
    """Return a manifest, that of the secrets with their values as far as they are known: others are what they are now."""
    if not is_secrets(manifest):
        return manifest
    return {**manifest, "data": {**(now.get("data") or {}), **_data(secrets)}}


def _data(secrets: Mapping[str, str]) -> Object:
    # Of the environment a value may have any bytes.
    return {name: b64encode(value.encode(errors="surrogateescape")).decode() for name, value in secrets.items()}


def is_main(thing: Mapping[str, Any]) -> bool:
    """Say whether pods are made of an object."""
    return any((kind.api_version, kind.kind) == (thing["apiVersion"], thing["kind"]) for kind in MAIN)


def may_have(kind: Kind, plan: Plan | None) -> bool:
    """Say whether a job may consist of a kind that every cluster has, as far as its plan is known.

    Under an operator it has no Jobs of its own, and without secrets no Secret, which not everybody may look at.
    """
    if kind is JOB and plan is not None and plan.cluster is not None:
        return plan.cluster.operator == "none"
    if kind is SECRET and plan is not None:
        return any(node.launch.secrets for node in plan.nodes)
    return kind in BUILT_IN
