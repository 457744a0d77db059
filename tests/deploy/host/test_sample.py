"""How busy hosts and devices are, from what drivers' tools print (real output, of several versions)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.sample import DeviceSample, HostSample, parse_sample
from jobctl.jobspec.deploy.transport.local import LocalTransport

SAMPLES = Path(__file__).parent / "samples"
MIB = 1 << 20


def devices(name: str) -> tuple[DeviceSample, ...]:
    return parse_sample((SAMPLES / f"{name}.txt").read_text()).devices


def test_a_host_with_gpus_of_nvidia() -> None:
    sample = parse_sample((SAMPLES / "nvidia.txt").read_text())
    assert (sample.cpu["user"], sample.cpu["idle"], sample.cpu["steal"]) == (12.0, 980.0, 0.05)
    assert (sample.memory, sample.available, sample.load) == (131886856 * 1024, 98000000 * 1024, 1.25)
    h100 = "NVIDIA H100 80GB HBM3"
    assert sample.devices == (
        DeviceSample("gpu:0", h100, 0.97, 61234.0 * MIB, 81559.0 * MIB, 689.51, 64.0, 0.0, 0.0),
        DeviceSample("gpu:1", h100, 0.0, 1.0 * MIB, 81559.0 * MIB, 71.2, 31.0, 3.0, 1.0),
        DeviceSample("gpu:2", "NVIDIA GeForce RTX 4090", 0.12, 512.0 * MIB, 24564.0 * MIB, None, 45.0),
    )


def test_a_host_with_gpus_of_amd() -> None:
    assert devices("rocm") == (
        DeviceSample("gpu:0", "Arcturus GL-XL [Instinct MI100]", 0.25, 6750208.0, 34342961152.0, 36.0, 55.0),
        DeviceSample("gpu:1", watts=140.5),
    )


def test_a_host_with_ascend() -> None:
    assert devices("npu") == (
        DeviceSample("npu:0", "Ascend910", 0.8, 3419.0 * MIB, 65536.0 * MIB, 162.6, 34.0),
        DeviceSample("npu:1", "Ascend910", 0.0, 2874.0 * MIB, 65536.0 * MIB, None, 34.0),
        DeviceSample("npu:4", "910B3", 0.07, 2621.0 * MIB, 15665.0 * MIB, 93.6, 40.0),
    )


@pytest.mark.parametrize("text", ["", "== stat\n", "== rocm\nno {\n", "== meminfo\nMemTotal:\n", "== npu\n| 0 |\n"])
def test_what_cannot_be_read_is_left_out(text: str) -> None:
    assert parse_sample(text) == HostSample({}, None, None, None, ())


def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script as it is sent, with a tool that prints what that of NVIDIA does."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "0, A GPU, 50, 1, 2, 3.5, 40, 0, 0"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    sample = parse_sample(LocalTransport().run(SCRIPTS.argv("sample")).out.decode())
    assert sample.memory is not None
    assert sample.available is not None
    assert sample.memory > sample.available > 0
    assert sample.cpu["idle"] > 0
    assert sample.load is not None
    assert sample.devices[0] == DeviceSample("gpu:0", "A GPU", 0.5, 1.0 * MIB, 2.0 * MIB, 3.5, 40.0, 0.0, 0.0)
