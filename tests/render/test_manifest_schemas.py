"""Manifests by the schemas of who reads them: API servers, and the operators' CRDs.

A field that would be dropped without a word is an error in both (tests/tools/reduce_crd.py).
"""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest
from jsonschema import Draft202012Validator

from .manifests import CASES, HERE, VERSIONS, check_core, objects, templates

SCHEMAS = {
    ("batch.paddlepaddle.org/v1", "PaddleJob"): "batch.paddlepaddle.org_paddlejobs",
    ("kubeflow.org/v1", "PaddleJob"): "kubeflow.org_paddlejobs",
    ("kubeflow.org/v1", "PyTorchJob"): "kubeflow.org_pytorchjobs",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "trainer.kubeflow.org_trainjobs",
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): "trainer.kubeflow.org_trainingruntimes",
}


# By the schemas of who reads them.


def validator(made: Any) -> Draft202012Validator:
    name = SCHEMAS[made["apiVersion"], made["kind"]]
    return Draft202012Validator(json.loads((HERE / "schemas" / f"{name}.json").read_text()))


@pytest.mark.parametrize("name", CASES)
def test_every_object_is_one_that_its_reader_takes(name: str) -> None:
    for made in objects(CASES[name]):
        if (made["apiVersion"], made["kind"]) in SCHEMAS:
            assert [error.message for error in validator(made).iter_errors(made)] == []
            for template in templates(made):
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
                check_core(pod)
        else:
            check_core(made)


@pytest.mark.parametrize("kind", SCHEMAS.values())
def test_schemas_refuse_what_an_operator_would_drop(kind: str) -> None:
    made = next(
        one for plan in CASES.values() for one in objects(plan) if SCHEMAS.get((one["apiVersion"], one["kind"])) == kind
    )
    check = validator(made)
    assert list(check.iter_errors(made)) == []
    misspelt = {**made, "spec": {**made["spec"], "cleanPodPolcy": "Never"}}
    assert [error.validator for error in check.iter_errors(misspelt)] == ["additionalProperties"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_core_objects_refuse_unknown_fields(version: str) -> None:
    made = objects(CASES["torch-resnet-none"])[-1]
    kubernetes_validate.validate(made, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**made, "spec": {**made["spec"], "backofLimit": 3}}, version, strict=True)
