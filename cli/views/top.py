"""How fast the nodes of a job step and what they use, as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.jobspec.operations.inspect.as_json import state_json
from jobctl.options import Format
from jobctl.views.live import draw_live, draws_live
from jobctl.views.status import head_lines

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.sample import DeviceSample
    from jobctl.jobspec.operations.inspect.top import JobLoad, NodeLoad

HEAD = ("NODE", "ROLE", "HOST", "STATE", "STEP", "STEPS/S", "CPU", "MEMORY")
DEVICES = ("DEVICE", "USE", "DEVICE MEMORY")


def show_top(handle: Handle, output: Format, *, once: bool) -> None:
    """Show it until the job ends: live on a terminal, otherwise one text (or line of JSON) after the other; or `once`."""
    from jobctl.jobspec.operations.inspect.top import LoadWatch

    looks = LoadWatch(handle, once=once).looks()
    if once and output is Format.json:
        console.out_json(load_json(handle, next(looks)))
    elif output is Format.json:
        for load in looks:
            console.out_json_line(load_json(handle, load))
    elif not once and draws_live():
        draw_live(load_text(handle, load) for load in looks)
    else:
        for load in looks:
            console.out(load_text(handle, load) + ("" if once else "\n"))
            console.pass_on()


def load_json(handle: Handle, load: JobLoad) -> dict[str, Any]:
    """Return it as plain data."""
    state = state_json(handle, load.observed)
    head = {key: state[key] for key in ("job", "phase", "reason", "generation")}
    return {**head, "nodes": [_node(one) for one in load.nodes]}


def _node(load: NodeLoad) -> dict[str, Any]:
    return {
        "node": load.node.node,
        "role": load.node.role,
        "host": load.node.host or None,
        "state": load.node.state,
        "progress": load.node.progress,
        "steps_per_second": _rounded(load.rate),
        "cpu": _rounded(load.cpu),
        "memory": _whole(load.memory),
        "devices": [_device(device) for device in load.devices],
    }


def _device(device: DeviceSample) -> dict[str, Any]:
    return {
        "device": device.device,
        "name": device.name,
        "utilization": device.utilization,
        "memory_used": _whole(device.memory_used),
        "memory": _whole(device.memory),
        "watts": device.watts,
        "celsius": device.celsius,
    }


def load_text(handle: Handle, load: JobLoad) -> str:
    """Return it as text: how the job is, and a row for each node and device."""
    lines = head_lines(state_json(handle, load.observed), load.observed)
    if load.nodes:
        wide = any(one.devices for one in load.nodes)
        rows = [row for one in load.nodes for row in _rows(one, wide=wide)]
        lines += ["", console.table((*HEAD, *DEVICES) if wide else HEAD, rows)]
    if handle.failures:
        lines += ["", *(error.message for error in handle.failures.values())]
    return "\n".join(lines)


def _rows(load: NodeLoad, *, wide: bool) -> list[tuple[str, ...]]:
    node = load.node
    first = (
        str(node.node),
        node.role,
        node.host or "-",
        node.state,
        "-" if node.progress is None else str(node.progress),
        "-" if load.rate is None else f"{load.rate:.2f}",
        "-" if load.cpu is None else f"{100 * load.cpu:.0f}%",
        _bytes(load.memory),
    )
    if not wide:
        return [first]
    devices = [_cells(device) for device in load.devices] or [("-", "-", "-")]
    rest = [("",) * len(first)] * (len(devices) - 1)
    return [(*left, *right) for left, right in zip([first, *rest], devices, strict=True)]


def _cells(device: DeviceSample) -> tuple[str, ...]:
    use = "-" if device.utilization is None else f"{100 * device.utilization:.0f}%"
    return device.device, use, f"{_bytes(device.memory_used)} / {_bytes(device.memory)}"


def _bytes(value: float | None) -> str:
    """Return a size as the spec writes it: `512m`, `61.2g`."""
    if value is None:
        return "-"
    return f"{value / 2**30:.1f}g" if value >= 2**30 else f"{value / 2**20:.0f}m"


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
