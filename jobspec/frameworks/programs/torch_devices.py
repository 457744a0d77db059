"""Measures the devices of a host with PyTorch, on behalf of the probe of `check --fitness`, which calls `measure`."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List

Json = Dict[str, Any]
BUFFER = 16 << 20  # numbers that a device copies at once


def accelerators(torch: Any, kind: str) -> List[str]:
    """Return what PyTorch calls the devices of a kind that it sees."""
    if kind == "cpu":
        return ["cpu"]
    name = {"gpu": "cuda", "dcu": "cuda"}.get(kind, kind)
    if name == "npu":
        __import__("torch_npu")
    module = getattr(torch, name, None)
    return ["%s:%d" % (name, index) for index in range(module.device_count() if module else 0)]


def wait_for(torch: Any, device: str) -> None:
    """Return when a device has done what it was given."""
    if device != "cpu":
        getattr(torch, device.split(":")[0]).synchronize(device)


def timed(torch: Any, devices: List[str], seconds: float, step: Callable[[str], object]) -> float:
    """Return how many steps a second each device does, all at the same time."""
    for device in devices:  # what it compiles or allocates is not measured
        step(device)
    for device in devices:
        wait_for(torch, device)
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        for _ in range(4):
            for device in devices:
                step(device)
        for device in devices:
            wait_for(torch, device)
        count += 4
    return count / (time.monotonic() - begin)


def matrices(torch: Any, device: str, size: int, kind: Any) -> Any:
    """Return two matrices of small whole numbers, and the exact sum of their product."""
    random = torch.Generator().manual_seed(7)
    one, other = (torch.randint(0, 4, (size, size), generator=random) for _ in range(2))
    exact = int((one.sum(0) * other.sum(1)).sum())
    return one.to(device, kind), other.to(device, kind), exact


def right(torch: Any, device: str) -> bool:
    """Say whether a device multiplies whole numbers exactly: each entry fits into a float's 24 bits."""
    one, other, exact = matrices(torch, device, 1024, torch.float32)
    return bool(int((one @ other).to("cpu", torch.float64).sum()) == exact)


def device_speeds(torch: Any, device: str, size: int, seconds: float) -> Json:
    """Measure one device alone."""
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    one, other, _ = matrices(torch, device, size, kind)
    large = torch.ones(BUFFER if device != "cpu" else BUFFER >> 2, dtype=torch.float32, device=device)
    into = torch.empty_like(large)
    bits = large.numel() * 4
    found = {
        "device": device,
        "right": right(torch, device),
        "gemm": timed(torch, [device], seconds, lambda _: torch.mm(one, other)) * 2 * size**3 / 1e12,
        "memory": timed(torch, [device], seconds, lambda _: into.copy_(large)) * 2 * bits / 1e9,
    }
    if device != "cpu":
        host = torch.ones(BUFFER, dtype=torch.float32).pin_memory()
        found["copy"] = timed(torch, [device], seconds, lambda _: large.copy_(host, non_blocking=True)) * bits / 1e9
        found["back"] = timed(torch, [device], seconds, lambda _: host.copy_(large, non_blocking=True)) * bits / 1e9
    return found


def measure(task: Json) -> Json:
    """Measure each device alone, then all of the host together."""
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        return {"missing": "that takes PyTorch: %s" % error, "devices": []}
    names, size, seconds = accelerators(torch, task["kind"]), task["size"], task["seconds"]
    found = [device_speeds(torch, name, size, seconds) for name in names]
    if len(names) > 1:
        given = {name: matrices(torch, name, size, torch.bfloat16) for name in names}
        rate = timed(torch, names, seconds, lambda name: torch.mm(given[name][0], given[name][1]))
        for one in found:
            one["together"] = rate * 2 * size**3 / 1e12
    return {"missing": None, "torch": torch.__version__, "devices": found}
