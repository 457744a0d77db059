"""Where pods have the checkpoints, and what `validate` says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.spec.checks.targets import check_target
from jobctl.jobspec.spec.load import load_text

from .clusters import of_text
from .manifests import objects

SPEC = "name: a\nframework: torch\nimage: i\nscript: /t.py\nresources: {cpus: 1}\n"


def told(text: str) -> list[tuple[str, str]]:
    return [
        (one.severity, one.code)
        for one in check_target(load_text(Path("job.yaml"), SPEC + text, environ={}), "kubernetes")
    ]


def place(text: str, path: str) -> tuple[str, Any]:
    """Return what the pods mount around `path`: the target, and the volume without its name."""
    pod = objects(of_text(SPEC + text))[-1]["spec"]["template"]["spec"]
    volumes = {one.pop("name"): one for one in pod["volumes"]}
    around = [one for one in pod["containers"][0]["volumeMounts"] if f"{path}/".startswith(f"{one['mountPath']}/")]
    inner = max(around, key=lambda one: len(one["mountPath"]))
    return inner["mountPath"], volumes[inner["name"]]


def claim(name: str) -> Any:
    return {"persistentVolumeClaim": {"claimName": name}}


FOLDER = {"hostPath": {"path": "/data/ck", "type": "Directory"}}
ON_A_NODE = [("warning", "node-path")]


@pytest.mark.parametrize(
    ("volumes", "mounted", "said"),
    [
        (["data:/data"], ("/data", claim("data")), []),
        (["data:/data", "/fs:/data/ck/tables"], ("/data", claim("data")), []),
        (["/fs:/data", "data:/data/ck/tables"], ("/data/ck", FOLDER), ON_A_NODE),
        (["data:/data:ro"], ("/data/ck", FOLDER), ON_A_NODE),
        ([{"type": "volume", "target": "/data"}], ("/data/ck", FOLDER), ON_A_NODE),
    ],
)
def test_checkpoints_in_a_claim_get_no_folder_of_a_node(volumes: Any, mounted: object, said: object) -> None:
    text = f"volumes: {json.dumps(volumes)}\ncheckpoint: /data/ck\n"
    assert (place(text, "/data/ck"), told(text)) == (mounted, said)


def test_a_claim_for_the_checkpoints_alone_is_mounted_within_another() -> None:
    text = "volumes: [data:/data]\ncheckpoint: /data/ck\nkubernetes: {checkpoint_claim: disk}\n"
    assert (place(text, "/data/ck"), told(text)) == (("/data/ck", claim("disk")), [])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", [*ON_A_NODE, ("warning", "kubernetes-checkpoint")]),
        ("volumes: [data:/data]\n", []),
        ("kubernetes: {checkpoint_claim: disk}\n", []),
    ],
)
def test_nothing_keeps_a_pod_where_its_checkpoints_are(more: str, said: object) -> None:
    assert told(f"checkpoint: {{dir: /data/ck, shared: false}}\n{more}") == said
