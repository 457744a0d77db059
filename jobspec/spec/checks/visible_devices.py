"""Variables that say which devices processes see: on this machine jobctl sets them, as nothing else separates nodes there.

A container has no other devices than its node's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.frameworks import VISIBLE
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source


def check_visible_devices(spec: Spec, source: Source, environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield a warning for each in the spec's `env`, or in `up`'s environment: processes do not get these values."""
    for name in VISIBLE.get(spec.devices.kind, ()):
        if name in spec.env:
            message = f"on target `local` processes are told `{name}` by the launcher: this value never arrives"
            where = source.key_span(("env", name))
            yield Diagnostic("warning", "reserved-variable", message, where, _hint(spec, spec.env[name]))
        elif environ.get(name) and spec.devices.ids is None and not _is_first(spec, environ[name]):
            taken = "the machine's first devices" if spec.devices.count else "all devices of the machine"
            message = f"target `local` does not use `{name}={environ[name]}` of this shell: it takes {taken}"
            where = source.value_span(("devices",))
            yield Diagnostic("warning", "reserved-variable", message, where, _hint(spec, environ[name]))


def check_numbers_in_containers(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield a warning where `env` names GPUs that a container does not have: its own are numbered from 0, whichever they are."""
    name = "CUDA_VISIBLE_DEVICES"
    value = spec.env.get(name)
    if spec.devices.kind != "gpu" or value is None:
        return
    count = spec.devices.count if spec.devices.ids is None else len(spec.devices.ids)
    named = value.split(",")
    if sorted(named) == sorted(map(str, range(count or len(named)))):
        return
    message = f"a container sees its own GPUs alone, numbered from 0: with `{name}={value}` processes lack some of them"
    hint = "leave it out: `devices` says which GPUs a container has"
    yield Diagnostic("warning", "reserved-variable", message, source.key_span(("env", name)), hint)


def check_shared_devices(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield a warning where all nodes have the same `ids`. On hosts it is an error; here such a job may only be tried."""
    nodes = min(spec.nodes.max, spec.ps.trainers) if spec.ps else spec.nodes.max  # those with devices
    if spec.devices.ids is not None and nodes > 1:
        message = f"target `local` has {nodes} nodes on this machine, and each uses the same devices"
        where = source.value_span(("devices", "ids"))
        yield Diagnostic("warning", "shared-devices", message, where, "give `count` in place of `ids`")


def _is_first(spec: Spec, value: str) -> bool:
    """Say whether the devices that jobctl takes, the first of the machine, are the first of these."""
    count = (spec.devices.count or 0) * spec.nodes.max
    return count > 0 and value.split(",")[:count] == [str(number) for number in range(count)]


def _hint(spec: Spec, value: str) -> str:
    ids = value if all(part.isdigit() for part in value.split(",")) else "0,1"
    return f'`devices: {{kind: {spec.devices.kind}, ids: "{ids}"}}` says which'
