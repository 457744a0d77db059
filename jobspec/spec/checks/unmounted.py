"""Volumes and code that are not where the spec says, as nothing is mounted: on this machine, and on nodes without containers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.parts.parts import Volume
from jobctl.jobspec.spec.reading.source import Source


def check_node_paths(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield what processes on the nodes of an allocation, without containers, do not find where the spec says."""
    hint = "name paths of the nodes in the script's arguments"
    for number, volume in enumerate(spec.volumes):
        if volume.kind != "bind":
            message = f"processes on the nodes see `{volume.target}` of their node, not {_what(volume)}"
            yield Diagnostic("warning", "not-mounted", message, source.value_span(("volumes", number)), hint)
        elif volume.source != volume.target:
            message = f"processes on the nodes see `{volume.source}`, not `{volume.target}`"
            yield Diagnostic("warning", "not-mounted", message, source.value_span(("volumes", number, "source")), hint)
    if spec.code is not None and source.has(("code", "target")):
        message = "processes on the nodes find the code in their working directory, not at this path"
        yield Diagnostic("warning", "not-mounted", message, source.value_span(("code", "target")), hint)


def check_local_paths(spec: Spec, source: Source, directory: Path) -> Iterator[Diagnostic]:
    """Yield the volumes that processes on this machine do not find where the spec says."""
    for number, volume in enumerate(spec.volumes):
        if volume.kind != "bind" or not volume.source:
            message = (
                f"target `local` mounts nothing: processes see `{volume.target}` of this machine, not {_what(volume)}"
            )
            yield Diagnostic("warning", "not-mounted", message, source.value_span(("volumes", number)))
            continue
        span = source.value_span(("volumes", number, "source"))
        path = os.path.normpath(directory / os.path.expanduser(volume.source))
        if not os.path.exists(path):
            message = f"there is no `{volume.source}` on this machine"
            yield Diagnostic("warning", "file-not-found", message, span, "nothing is created in its place")
        if path != os.path.normpath(volume.target):
            message = f"target `local` mounts nothing: processes see `{volume.source}`, not `{volume.target}`"
            yield Diagnostic("warning", "not-mounted", message, span)


def check_local_code(spec: Spec, source: Source, directory: Path) -> Iterator[Diagnostic]:
    """Yield a warning if the code on this machine is elsewhere than the spec says."""
    if spec.code is None or not source.has(("code", "target")):
        return
    if os.path.normpath(directory / spec.code.source) != os.path.normpath(spec.code.target):
        message = f"target `local` mounts nothing: the code is at `{spec.code.source}`, not `{spec.code.target}`"
        yield Diagnostic("warning", "not-mounted", message, source.value_span(("code", "target")))


def _what(volume: Volume) -> str:
    """Return what a volume without a path of its own is."""
    if volume.kind == "tmpfs":
        return "a `tmpfs`"
    return f"the volume `{volume.source}`" if volume.source else "a volume"
