"""Rates between looks at a job, and how `top` shows them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.apply.deployer import Handle
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, ObservedProcess
from jobctl.jobspec.deploy.model.sample import DeviceSample
from jobctl.jobspec.operations.inspect.top import JobLoad, NodeLoad, _Course, own_devices
from jobctl.views.top import load_json, load_text


@pytest.mark.parametrize(
    ("looks", "rates"),
    [
        ([(0, 10), (1, 12), (3, 20)], [None, 2.0, 10 / 3]),
        ([(0, 0), (8, 80), (16, 80), (24, 80)], [None, 10.0, 5.0, 0.0]),  # what is older than the window does not count
        ([(0, 100), (1, 110), (2, 105), (3, 110)], [None, 10.0, None, 5.0]),  # it went on from a checkpoint
        ([(0, 10), (1, None), (2, 30), (3, 31)], [None, None, None, 1.0]),  # it did not run in between
        ([(5, 1), (5, 2)], [None, None]),
        # Steps of 30 s each; then none comes any more.
        (
            [(0, 1), (30, 2), (40, 2), (50, 2), (60, 3), (62, 3), (80, 3), (90, 4), (150, 4), (152, 4)],
            [None, 1 / 30, 0.0, 0.0, 1 / 30, 1 / 30, 1 / 30, 1 / 30, 1 / 30, 0.0],
        ),
    ],
)
def test_steps_a_second(looks: list[tuple[float, int | None]], rates: list[float | None]) -> None:
    course = _Course()
    assert [course.rate(now, step) for now, step in looks] == rates


@pytest.mark.parametrize(
    ("looks", "cores"),
    [
        ([(0, 5.0), (2, 9.0), (4, 9.0)], [None, 2.0, 0.0]),
        ([(0, 5.0), (2, 1.0), (4, 2.0)], [None, None, 0.5]),  # other processes
        ([(0, 5.0), (2, None), (4, 9.0)], [None, None, None]),
    ],
)
def test_busy_cores(looks: list[tuple[float, float | None]], cores: list[float | None]) -> None:
    course = _Course()
    assert [course.cores(now, seconds) for now, seconds in looks] == cores


DEVICES = tuple(DeviceSample(f"gpu:{n}", "A100", 0.5 + n / 10, 61.25 * 2**30, 80 * 2**30) for n in range(3))


def node(number: int, *devices: str | None, state: Any = "running") -> ObservedNode:
    processes = tuple(ObservedProcess(n, n, "running", 7, None, device) for n, device in enumerate(devices))
    return ObservedNode(number, "trainer", f"gpu0{number}", state, launcher=1, progress=1200, processes=processes)


def test_a_node_has_those_devices_of_its_host_that_its_processes_have() -> None:
    assert own_devices(node(0, "gpu:0", "gpu:2"), DEVICES) == (DEVICES[0], DEVICES[2])
    assert own_devices(node(0, None), DEVICES) == DEVICES
    assert own_devices(node(0, "cpu:0"), ()) == ()


def load(*nodes: NodeLoad) -> JobLoad:
    observed = Observed(NOTHING, tuple(one.node for one in nodes), supervised=None, verdict=("running", None))
    return JobLoad(observed, nodes, over=False)


HANDLE = cast(Handle, SimpleNamespace(job=SimpleNamespace(name="resnet"), plan=None, failures={}))


def test_a_table_with_devices() -> None:
    made = load(
        NodeLoad(node(0), 12.345, 2.346, 3.5 * 2**30, DEVICES[:2]),
        NodeLoad(node(1, state="lost"), None, None, 300 * 2**20, ()),
        NodeLoad(node(2), 0.0, 0.0, None, (DeviceSample("npu:0"),)),
    )
    assert load_text(HANDLE, made).splitlines()[2:] == [
        "NODE  ROLE     HOST   STATE    STEP  STEPS/S  CPU   MEMORY  DEVICE  USE  DEVICE MEMORY",
        "0     trainer  gpu00  running  1200  12.35    235%  3.5g    gpu:0   50%  61.2g / 80.0g",
        "                                                            gpu:1   60%  61.2g / 80.0g",
        "1     trainer  gpu01  lost     1200  -        -     300m    -       -    -",
        "2     trainer  gpu02  running  1200  0.00     0%    -       npu:0   -    - / -",
    ]


def test_a_table_without_devices() -> None:
    assert load_text(HANDLE, load(NodeLoad(node(0), 1.5, None, None, ()))).splitlines()[2:] == [
        "NODE  ROLE     HOST   STATE    STEP  STEPS/S  CPU  MEMORY",
        "0     trainer  gpu00  running  1200  1.50     -    -",
    ]


def test_plain_data() -> None:
    told = load_json(HANDLE, load(NodeLoad(node(0), 1.23456, 0.5, 1024.0, DEVICES[:1])))
    assert told == {
        "job": "resnet",
        "phase": "running",
        "reason": None,
        "generation": None,
        "nodes": [
            {
                "node": 0,
                "role": "trainer",
                "host": "gpu00",
                "state": "running",
                "progress": 1200,
                "steps_per_second": 1.235,
                "cpu": 0.5,
                "memory": 1024,
                "devices": [
                    {
                        "device": "gpu:0",
                        "name": "A100",
                        "utilization": 0.5,
                        "memory_used": 65766686720,
                        "memory": 85899345920,
                        "watts": None,
                        "celsius": None,
                    }
                ],
            }
        ],
    }
