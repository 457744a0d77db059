"""Trainers beside parameter servers that are more than the devices for them. In a cluster each is a pod with one of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.spec.checks.rules import ERROR, WARNING, CheckRule
from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source


def _exceed(spec: Spec) -> bool:
    """Say whether there are more trainers on a host than devices; they are dealt round-robin, so the first has the most."""
    if spec.ps is None or spec.mode != "ps":
        return False
    devices = len(spec.devices.ids) if spec.devices.ids is not None else spec.devices.count
    return devices is not None and -(-spec.ps.trainers // spec.nodes.max) > devices


# fmt: off
RULES: tuple[CheckRule, ...] = (
    CheckRule("too-many-trainers", ERROR, ("ps", "trainers"), lambda s: s.devices.kind != "cpu" and _exceed(s),
         "more trainers on a host than it has devices", "lower `ps.trainers`, or add nodes or devices"),
    CheckRule("too-many-trainers", WARNING, ("ps", "trainers"), lambda s: s.devices.kind == "cpu" and _exceed(s),
         "more trainers on a host than `devices` says", "raise `devices: cpu:N`, or lower `ps.trainers`"),
)
# fmt: on


def check_trainers(spec: Spec, source: Source, places: Sequence[Host]) -> Iterator[Diagnostic]:
    """Trainers are dealt round-robin over the nodes that take them, and each needs a device of its own."""
    if spec.ps is None or _exceed(spec):  # then it is said, whatever the hosts
        return
    used = [host for host in places if host.trains]
    for number, host in enumerate(used):
        has, share = _devices_a_node(spec, host), len(range(number, spec.ps.trainers, len(used)))
        if has is None or share <= has:
            continue
        where = source.value_span(("ps", "trainers"))
        node = f"a node of {host.name}" if host.nodes > 1 else host.name
        if spec.devices.kind == "cpu":
            message = f"{share} trainers on {node}, and `devices` says {has} there"
            yield Diagnostic("warning", "too-many-trainers", message, where)
        else:
            message = f"{share} trainers on {node}, which has {counted(has, 'device')}"
            yield Diagnostic("error", "too-many-trainers", message, where)
        return


def _devices_a_node(spec: Spec, host: Host) -> int | None:
    """Return how many devices each node on a host has, None where nobody has said."""
    if spec.devices.ids is not None:
        return len(spec.devices.ids)
    has = len(host.devices) if host.devices is not None else host.slots
    return spec.devices.count if has is None or spec.devices.count is not None else has // host.nodes
