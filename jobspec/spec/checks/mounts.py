"""Mounts of a container that hide each other, or what jobctl mounts itself, and those of what hosts do not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import normpath

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # of Docker and Podman
_ROOT, _OURS = PurePosixPath("/"), PurePosixPath("/jobctl")  # the launcher's files are in the latter


def mounts(spec: Spec) -> list[tuple[PurePosixPath, tuple[str | int, ...]]]:
    """Return the target of every mount of a container, and where in the spec it is written."""
    found: list[tuple[str, tuple[str | int, ...]]] = [
        (volume.target, ("volumes", number, "target")) for number, volume in enumerate(spec.volumes)
    ]
    found += [(one.target, ("data", number, "target")) for number, one in enumerate(spec.data)]
    if spec.code is not None:
        found.append((spec.code.target, ("code", "target")))
        # Folders among the outputs are mounted into the code, so that they stay when it changes.
        folders = [(n, one) for n, one in enumerate(spec.outputs) if one.endswith("/") or not PurePosixPath(one).suffix]
        found += [(f"{spec.code.target}/{one}", ("outputs", number)) for number, one in folders]
    if spec.checkpoint is not None:
        found.append((spec.checkpoint.dir, ("checkpoint", "dir")))
    return [(PurePosixPath(normpath(target)), where) for target, where in found]


def check_mounts(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield an error for each mount that hides something."""
    for target, where in mounts(spec):
        if target == _ROOT:
            yield Diagnostic("error", "hidden-mount", "a mount at `/` hides the image", source.value_span(where))
        if target == _OURS or _OURS in target.parents:
            message = f"a mount at `{target}` hides files of jobctl, which are in `{_OURS}`"
            yield Diagnostic("error", "hidden-mount", message, source.value_span(where), "mount it elsewhere")
    yield from _hiding(spec, source)


def _same_bind(spec: Spec, one: tuple[str | int, ...], other: tuple[str | int, ...]) -> bool:
    """Say whether two mounts at one place show the same directory, as a volume for the checkpoint does."""
    if other[0] != "checkpoint" or one[0] != "volumes":
        return False
    volume = spec.volumes[int(one[1])]
    return volume.kind == "bind" and volume.source == volume.target and not volume.read_only


def _hiding(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """A mount hides an earlier one at the same place, and, if it is a volume, earlier ones below it."""
    at: dict[PurePosixPath, tuple[str | int, ...]] = {}
    below: dict[PurePosixPath, PurePosixPath] = {}  # a parent of a mount, and the first mount below it
    for target, where in mounts(spec):
        if target in at and not _same_bind(spec, at[target], where):
            message = f"two mounts at `{target}`: one hides the other"
            yield Diagnostic("error", "hidden-mount", message, source.value_span(where), "mount one of them elsewhere")
        if target in below and target != _ROOT and where[0] == "volumes":
            message = f"the mount at `{target}` hides the one at `{below[target]}`"
            yield Diagnostic("error", "hidden-mount", message, source.value_span(where), "list the outer mount first")
        at.setdefault(target, where)
        for parent in target.parents:
            below.setdefault(parent, target)


def check_relative_sources(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield an error for each path of a host that is relative to the spec, whose folder hosts do not have."""
    for number, volume in enumerate(spec.volumes):
        if volume.kind == "bind" and not PurePosixPath(volume.source or "").is_absolute():
            message = f"`{volume.source}` is relative to the spec, and the hosts have no such folder"
            hint = "give an absolute path on the hosts, or send files with `code`"
            if (volume.source or "").startswith("~"):
                message = f"`{volume.source}` is in a home of the hosts, and nobody knows here where that is"
                hint = "write all of the path on the hosts, such as `/home/NAME/data`, or send files with `code`"
            yield Diagnostic(
                "error", "relative-volume", message, source.value_span(("volumes", number, "source")), hint
            )


def check_certificates(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield an error for each certificate that is relative to the spec, where containers read them on their hosts."""
    tls = spec.etcd.tls if spec.etcd else None
    for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)) if tls else ():
        if path is not None and not PurePosixPath(path).is_absolute():
            message = f"`{path}` is relative to the spec, and the hosts have no such file"
            where = source.value_span(("etcd", "tls", name))
            yield Diagnostic("error", "relative-volume", message, where, "give an absolute path on the hosts")


def check_volume_names(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield an error for each name that no engine lets a volume have."""
    for number, volume in enumerate(spec.volumes):
        if volume.kind == "volume" and volume.source and not _NAME.fullmatch(volume.source):
            message = f"`{volume.source}` is not a valid name for a volume"
            hint = "use letters, digits, `_`, `.` and `-`, a letter or digit first; a path begins with `/`"
            yield Diagnostic("error", "bad-value", message, source.value_span(("volumes", number, "source")), hint)
