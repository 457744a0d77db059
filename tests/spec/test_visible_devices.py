"""On this machine jobctl says which devices processes see, whatever the shell of `up` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobctl.jobspec.spec.checks.targets import check_target
from jobctl.jobspec.spec.checks.visible_devices import check_shared_devices, check_visible_devices
from jobctl.jobspec.spec.load import load_text

HEAD = "name: demo\nframework: torch\nscript: train.py\n"


@pytest.mark.parametrize(
    ("text", "shell", "hint"),
    [
        ("devices: gpu:2", {"CUDA_VISIBLE_DEVICES": "4,5"}, 'ids: "4,5"'),
        ("devices: gpu", {"CUDA_VISIBLE_DEVICES": "0,1"}, 'ids: "0,1"'),  # the machine may have more
        ("devices: gpu:2\nnodes: 2", {"CUDA_VISIBLE_DEVICES": "0,1"}, 'ids: "0,1"'),
        ("devices: npu:1", {"ASCEND_RT_VISIBLE_DEVICES": "7"}, 'ids: "7"'),
        ("devices: gpu:2", {"CUDA_VISIBLE_DEVICES": "0,1,2"}, None),
        ("devices: {kind: gpu, ids: '4-5'}", {"CUDA_VISIBLE_DEVICES": "6"}, None),  # whoever says so knows
        ("devices: cpu:2", {"CUDA_VISIBLE_DEVICES": "6"}, None),
        ("devices: gpu:2", {}, None),
    ],
)
def test_devices_of_the_shell_are_not_left_out_unsaid(text: str, shell: dict[str, str], hint: str | None) -> None:
    loaded = load_text(Path("/none/job.yaml"), HEAD + text, environ={})
    assert loaded.spec is not None
    found = [one.hint or "" for one in check_visible_devices(loaded.spec, loaded.source, shell)]
    assert len(found) == (hint is not None)
    assert all(hint is not None and hint in one for one in found)


@pytest.mark.parametrize(
    ("devices", "taken"), [("gpu:2", "the machine's first devices"), ("gpu", "all devices of the machine")]
)
def test_which_devices_are_taken_instead(devices: str, taken: str) -> None:
    loaded = load_text(Path("/none/job.yaml"), f"{HEAD}devices: {devices}", environ={})
    assert loaded.spec is not None
    (found,) = check_visible_devices(loaded.spec, loaded.source, {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert found.message.endswith(f": it takes {taken}")


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("devices: {kind: gpu, ids: '0-1'}\nnodes: 2", True),
        ("devices: {kind: gpu, ids: '0-1'}\nnodes: '1:2'", True),
        ("devices: {kind: gpu, ids: '0-1'}", False),
        ("devices: {kind: gpu, ids: '0'}\nnodes: 2\nmode: ps\nps: {servers: 2, trainers: 1}", False),
        ("devices: gpu:1\nnodes: 2", False),
    ],
)
def test_nodes_of_this_machine_that_have_the_same_devices(text: str, warned: bool) -> None:
    loaded = load_text(Path("/none/job.yaml"), HEAD + text, environ={})
    assert loaded.spec is not None
    found = [(one.severity, one.code) for one in check_shared_devices(loaded.spec, loaded.source)]
    assert found == [("warning", "shared-devices")] * warned


@pytest.mark.parametrize(
    ("devices", "value", "warned"),
    [
        ("gpu:2", "5", True),
        ("gpu:2", "4,5", True),
        ("gpu:2", "0", True),
        ("gpu:2", "", True),
        ("gpu:2", "GPU-1,GPU-2", True),
        ("gpu:2", "1,0", False),
        ("{kind: gpu, ids: '4-5'}", "4,5", True),
        ("{kind: gpu, ids: '4-5'}", "0,1", False),
        ("gpu", "4,5", True),
        ("gpu", "0,1", False),
        ("cpu:2", "", False),  # a program that is to see none
        ("dcu:2", "4,5", False),  # a container sees the cards of all nodes, with their numbers
    ],
)
def test_gpus_of_the_host_are_not_those_of_a_container(devices: str, value: str, warned: bool) -> None:
    text = f"{HEAD}image: i\nresources: {{cpus: 1}}\ndevices: {devices}\nenv: {{CUDA_VISIBLE_DEVICES: '{value}'}}\n"
    loaded = load_text(Path("/none/job.yaml"), text, environ={})
    for target in ("compose", "ssh", "kubernetes"):
        found = [one.code for one in check_target(loaded, target)]
        assert ("reserved-variable" in found) == warned
