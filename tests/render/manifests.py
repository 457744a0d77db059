"""The manifests of a plan, as objects, and parts of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.artefact import Artefact, render
from tests.render.clusters import cases

HERE = Path(__file__).parent
CASES = cases()
VERSIONS = ("1.30", "1.37")  # of the API server


def artefacts(plan: Plan) -> list[Artefact]:
    return list(render(plan, first_generation(plan)))


def objects(plan: Plan) -> list[Any]:
    return [yaml.load(artefact.content, yaml.CSafeLoader) for artefact in artefacts(plan)]


def check_core(made: Any) -> None:
    for version in VERSIONS:
        kubernetes_validate.validate(made, version, strict=True)


def templates(made: Any) -> list[Any]:
    """Return the pod templates in an object, wherever they are."""
    if isinstance(made, list):
        return [found for item in made for found in templates(item)]
    if not isinstance(made, dict):
        return []
    own = [made] if "containers" in made.get("spec", {}) else []
    return own + [found for item in made.values() for found in templates(item)]
