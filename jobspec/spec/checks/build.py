"""The rules of the key `build`, for each target."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.parts.build import Build
from jobctl.jobspec.spec.reading.source import Source
from jobctl.jobspec.spec.sensitive import is_sensitive
from jobctl.jobspec.spec.targets import TARGETS, TargetName


def check_build(
    spec: Spec,
    source: Source,
    directory: Path,
    target: TargetName,
    hosts: Sequence[Host] = (),
) -> Iterator[Diagnostic]:
    """Yield what is wrong with the build of a spec on `target`, for `hosts` where there are any."""
    build, traits = spec.build, TARGETS[target]
    if build is None or not (traits.takes_hosts or traits.in_cluster):
        return
    if traits.in_cluster:
        message = "jobctl builds nothing for a cluster, whose nodes pull `image` from a registry"
        hint = "`docker build` and `docker push` bring it there"
        yield Diagnostic("warning", "build-unused", message, source.key_span(("build",)), hint)
        return
    yield from _name(spec, source)
    yield from _secrets(spec, build, source)
    yield from _files(build, source, directory)
    known = [host.name for host in hosts]
    if build.on is not None and hosts and build.on not in (*known, "localhost"):
        message = f"`build.on` names `{build.on}`, which is not among the hosts of the job"
        hint = f"the hosts are {', '.join(known[:5])}{'' if len(known) <= 5 else ', …'}; without it this machine builds"
        yield Diagnostic("error", "build-host", message, source.value_span(("build", "on")), hint)


def _name(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    if spec.image is not None and "@" in spec.image:
        message = "`image` is named by a digest, and what is built has none before"
        hint = "give a name, to which jobctl adds a tag of the content"
        yield Diagnostic("error", "build-digest", message, source.value_span(("image",)), hint)
    if spec.pull == "always":
        message = "`pull: always` asks a registry, and no registry has what `build` makes"
        hint = "leave out `pull`; a digest after FROM says which base image is meant"
        yield Diagnostic("error", "build-pull", message, source.value_span(("pull",)), hint)


def _secrets(spec: Spec, build: Build, source: Source) -> Iterator[Diagnostic]:
    secrets = {secret.name for secret in spec.secrets}
    for name in build.args:
        if name in secrets or is_sensitive(name):
            message = f"the value of `{name}` stays in the image, where everybody who has that can read it"
            hint = "keep credentials out of builds; processes get `secrets` when they run"
            where = ("build", "args", name)
            span = source.key_span(where) if source.has(where) else source.value_span(("build", "args"))
            yield Diagnostic("warning", "build-secret", message, span, hint)


def _files(build: Build, source: Source, directory: Path) -> Iterator[Diagnostic]:
    context = directory / os.path.expanduser(build.context)
    where = ("build", "context") if source.has(("build", "context")) else ("build",)
    if not os.path.isdir(context):
        hint = "paths of `build` are relative to the spec"
        message = f"there is no directory `{build.context}`"
        yield Diagnostic("warning", "file-not-found", message, source.value_span(where), hint)
    elif not os.path.isfile(context / build.dockerfile):
        where = ("build", "dockerfile") if source.has(("build", "dockerfile")) else where
        hint = "`dockerfile` is relative to `context`"
        message = f"there is no file `{build.dockerfile}` in `{build.context}`"
        yield Diagnostic("warning", "file-not-found", message, source.value_span(where), hint)
