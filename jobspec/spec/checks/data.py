"""The rules of the key `data`, for each target."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobctl.jobspec.spec.data_place import place_of_data
from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.hosts import Host, UnknownHost, choose
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source
from jobctl.jobspec.spec.targets import TARGETS, TargetName


def check_data(spec: Spec, source: Source, directory: Path, target: TargetName) -> Iterator[Diagnostic]:
    """Yield what is wrong with the data of a spec on `target`."""
    traits = TARGETS[target]
    if spec.data and traits.chooses_nodes:
        message = f"jobctl sends no data on target `{target}`"
        hint = "mount a claim with `volumes`" if traits.mounts_by_name else "name paths that all nodes see"
        yield Diagnostic("error", "data-not-sent", message, source.key_span(("data",)), hint)
        return
    for number, one in enumerate(spec.data):
        span = source.value_span(("data", number, "source"))
        if place_of_data(one.source)[0] is not None:
            if traits.is_here:
                message = f"target `local` sends no data: processes have to find `{one.target}` on this machine"
                yield Diagnostic("warning", "not-mounted", message, span)
            continue
        path = os.path.normpath(directory / os.path.expanduser(one.source))
        if not os.path.isdir(path):
            hint = "paths of `data` are relative to the spec"
            yield Diagnostic("warning", "file-not-found", f"there is no directory `{one.source}`", span, hint)
        if traits.is_here and path != one.target:
            message = f"target `local` mounts nothing: processes see `{one.source}`, not `{one.target}`"
            yield Diagnostic("warning", "not-mounted", message, span)


def hosts_with_data(spec: Spec, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return those of `hosts` that get all data of a spec: the job uses no others. Raises UnknownHost."""
    found = tuple(hosts)
    for one in spec.data:
        if one.hosts:
            named = {host.name for host in choose(hosts, ",".join(one.hosts), None)}
            found = tuple(host for host in found if host.name in named)
    return found


def check_data_hosts(spec: Spec, source: Source, hosts: Sequence[Host], chosen: Sequence[Host]) -> Iterator[Diagnostic]:
    """Yield what is wrong with the hosts that data is for: `hosts` are in the file, of which some are `chosen`."""
    named = [number for number, one in enumerate(spec.data) if one.hosts]
    unknown = False
    for number in named:
        try:
            choose(hosts, ",".join(spec.data[number].hosts), None)
        except UnknownHost as error:
            unknown = True
            yield Diagnostic(
                "error", "data-hosts", str(error), source.value_span(("data", number, "hosts")), error.hint
            )
    if named and chosen and not unknown and not set(hosts_with_data(spec, hosts)) & set(chosen):
        message = "no host that the job may use gets all of its data"
        hint = "the job runs where all data is: name the same hosts for each, and choose them with `--on`"
        yield Diagnostic("error", "data-hosts", message, source.value_span(("data", named[-1], "hosts")), hint)
