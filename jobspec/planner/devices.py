"""The devices of a node, and the variables that tell its processes which they have. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.plan import types
from jobctl.jobspec.planner.context import PlanError, Request
from jobctl.jobspec.planner.placement import Place, Task
from jobctl.jobspec.spec.frameworks import VISIBLE

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec


def visible_names(request: Request) -> tuple[str, ...]:
    """Return the variables that tell a node's processes which devices of the machine are theirs.

    On `local` nothing renumbers devices, so each node's processes are shown their share of them.
    """
    if not request.context.traits.is_here:
        return ()
    kind = request.spec.devices.kind
    return (*VISIBLE.get(kind, ()), *request.framework.visible_devices_env(kind))


def devices_of(spec: Spec, task: Task) -> types.Devices:
    """Return a node's devices: trainers alone have some, those of mode `ps` one each."""
    if task.role != "trainer":
        return types.Devices("cpu", ())
    every = _all_devices(spec, task.place)
    if task.nproc is None and every.kind != "cpu" and every.ids == ():
        raise PlanError(
            "too-few-devices",
            f"{task.place.host.name} has fewer devices of kind `{every.kind}` than nodes: one node would have none",
            ("devices",),
            "use at most as many nodes there as the host has devices",
        )
    if task.nproc is None or every.ids is None:
        return every
    if every.kind != "cpu" and len(every.ids) < task.nproc:
        raise PlanError(
            "too-many-trainers",
            f"{task.nproc} trainers are dealt to {task.place.host.name}, which has {len(every.ids)} devices for them",
            ("ps", "trainers"),
            "lower `ps.trainers`, or add nodes or devices",
        )
    return types.Devices(every.kind, every.ids[: task.nproc])


def _all_devices(spec: Spec, place: Place) -> types.Devices:
    wanted = spec.devices
    if wanted.kind == "cpu":
        return types.Devices("cpu", ())
    if wanted.ids is not None:
        return types.Devices(wanted.kind, wanted.ids)
    if place.slots is None and wanted.count is None:
        raise PlanError(
            "devices-unknown",
            f"how many devices of kind `{wanted.kind}` host {place.host.name} has is not known",
            ("devices",),
            f"say `devices: {wanted.kind}:8` in the spec or `slots=8` in the hosts file; `check`, `plan` and `up` count them",
        )
    if wanted.count is None:
        return types.Devices(wanted.kind, place.slots)
    ids = tuple(range(wanted.count)) if place.slots is None else place.slots[: wanted.count]
    if len(ids) < wanted.count:
        raise PlanError(
            "too-few-devices",
            f"a node needs {wanted.count} devices of kind `{wanted.kind}` and {place.host.name} has {len(ids)} for it",
            ("devices",),
        )
    return types.Devices(wanted.kind, ids)


def device_labels(spec: Spec, devices: types.Devices, nproc: int | None) -> tuple[str, ...]:
    """Return the device of each process of a node, such as `gpu:0`; as many of `cpu` as the spec or `nproc` says."""
    if devices.kind == "cpu":
        cpus = (spec.devices.count if spec.devices.kind == "cpu" else None) or 1
        return tuple(f"cpu:{i}" for i in range(nproc or cpus))
    return tuple(f"{devices.kind}:{i}" for i in devices.ids or ())
