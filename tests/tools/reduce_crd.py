"""Make a schema for tests out of a custom resource definition.

    python tests/tools/reduce_crd.py CRD.yaml > tests/render/schemas/NAME.json

The CRDs hold half a megabyte each, most of it the text and the rarer parts of pod templates. What is kept validates as it
did before: types, enums, patterns, required fields, bounds. What is left out is refused, as is every field that the API
server would drop without a word: each object that has properties allows no others.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

# Parts of pod templates and job sets that no manifest of ours has.
LEFT_OUT = {
    *("ephemeralContainers", "topologySpreadConstraints", "dnsConfig", "hostAliases", "overhead", "resourceClaims"),
    *("readinessGates", "schedulingGates", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "envFrom"),
    *("initializer", "runtimePatches", "status", "heter", "metrics", "volumeClaimPolicies", "startupPolicy", "selector"),
    *("podFailurePolicy", "successPolicy", "windowsOptions", "projected", "csi", "ephemeral", "coordinator"),
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker", "gitRepo"),
    *("gcePersistentDisk", "glusterfs", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd"),
    *("scaleIO", "storageos", "vsphereVolume", "downwardAPI", "image_volume"),
}  # fmt: skip
KEPT = {
    *("type", "enum", "pattern", "required", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "x-kubernetes-int-or-string", "x-kubernetes-validations"),
}


def reduced(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without what is left out; in JSON Schema's terms, not OpenAPI's."""
    made = {key: value for key, value in schema.items() if key in KEPT}
    rules = [rule["rule"] for rule in made.pop("x-kubernetes-validations", ())]
    if rules:
        made["$comment"] = "; ".join(rules)
    if made.pop("x-kubernetes-int-or-string", False):
        made["type"] = ["integer", "string"]
    if "properties" in schema:
        made["properties"] = {
            name: reduced(value) for name, value in schema["properties"].items() if name not in LEFT_OUT
        }
        made["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = reduced(schema["additionalProperties"])
    if "items" in schema:
        made["items"] = reduced(schema["items"])
    return made


def of_crd(crd: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the version that is stored, for whole objects."""
    version = next(one for one in crd["spec"]["versions"] if one["storage"])
    schema = reduced(version["schema"]["openAPIV3Schema"])
    names = crd["spec"]["names"]
    schema["properties"]["apiVersion"] = {"const": f"{crd['spec']['group']}/{version['name']}"}
    schema["properties"]["kind"] = {"const": names["kind"]}
    schema["properties"]["metadata"] = METADATA
    schema["required"] = sorted({"apiVersion", "kind", "metadata", *schema.get("required", ())})
    return schema


_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}, "labels": _TEXTS, "annotations": _TEXTS},
    "required": ["name"],
    "additionalProperties": False,
}  # fmt: skip


def main() -> None:
    """Write the schema of the CRD that is named."""
    with Path(sys.argv[1]).open() as file:
        crd = yaml.load(file, yaml.CSafeLoader)
    json.dump(of_crd(crd), sys.stdout, separators=(",", ":"), sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
