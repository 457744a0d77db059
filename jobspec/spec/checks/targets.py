"""The rules between a spec, the target that was asked for, and the hosts file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.checks.addresses import check_addresses
from jobctl.jobspec.spec.checks.build import check_build
from jobctl.jobspec.spec.checks.data import check_data
from jobctl.jobspec.spec.checks.docker_options import check_docker_options
from jobctl.jobspec.spec.checks.kubernetes import RULES as KUBERNETES
from jobctl.jobspec.spec.checks.mounts import check_certificates, check_relative_sources, check_volume_names
from jobctl.jobspec.spec.checks.notify import check_from_hosts, check_told
from jobctl.jobspec.spec.checks.ports import check_etcd_port, check_ports
from jobctl.jobspec.spec.checks.rules import apply, operator_of
from jobctl.jobspec.spec.checks.slurm import RULES as SLURM
from jobctl.jobspec.spec.checks.slurm import (
    check_enroot_paths,
    check_options,
    has_engine,
    has_image_name,
    in_container,
)
from jobctl.jobspec.spec.checks.trainers import RULES as TRAINERS
from jobctl.jobspec.spec.checks.trainers import check_trainers
from jobctl.jobspec.spec.checks.unmounted import check_local_code, check_local_paths, check_node_paths
from jobctl.jobspec.spec.checks.visible_devices import (
    check_numbers_in_containers,
    check_shared_devices,
    check_visible_devices,
)
from jobctl.jobspec.spec.cluster_names import OBJECT_HINT, is_object
from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.spec.load import Loaded
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.partial import findings_of
from jobctl.jobspec.spec.reading.source import Source
from jobctl.jobspec.spec.targets import TARGETS, PlaceKind, TargetName


def check_target(
    loaded: Loaded, target: TargetName, hosts: Sequence[Host] = (), hosts_path: Path | None = None
) -> list[Diagnostic]:
    """Return what is wrong with a spec for `target`, and for `hosts` where there are any.

    Of a spec with mistakes, what can be told in spite of them.
    """
    spec, source = loaded.draft, loaded.source
    if spec is None:
        return []
    data = findings_of(lambda: check_data(spec, source, loaded.directory, target))
    where = _Where(target, loaded.directory, hosts, hosts_path)
    return data + CHECKS[TARGETS[target].place](spec, source, where)


@dataclass(frozen=True, slots=True)
class _Where:
    """Where a job is to run: the target, the folder of the spec, and the hosts that were chosen of a hosts file."""

    target: TargetName
    directory: Path
    hosts: Sequence[Host]
    hosts_path: Path | None


def _on_this_machine(spec: Spec, source: Source, where: _Where) -> list[Diagnostic]:
    return _all(
        lambda: apply(TRAINERS, spec, source),
        lambda: _processes(spec, source),
        lambda: check_local_paths(spec, source, where.directory),
        lambda: check_local_code(spec, source, where.directory),
        lambda: _local_script(spec, source),
        lambda: check_from_hosts(spec, source),
        lambda: check_visible_devices(spec, source, os.environ),
        lambda: check_shared_devices(spec, source),
        lambda: check_etcd_port(spec, source),
        lambda: _fitness(spec, source, where.target),
    )


def _in_containers(spec: Spec, source: Source, where: _Where) -> list[Diagnostic]:
    return _all(
        lambda: _image(spec, source, where.target),
        lambda: _image_name(source, spec.image, "image"),
        lambda: check_build(spec, source, where.directory, where.target, where.hosts),
        lambda: check_relative_sources(spec, source),
        lambda: check_numbers_in_containers(spec, source),
        lambda: _script_not_sent(spec, source, where.directory),
        lambda: _outputs_not_kept(spec, source),
    )


def _in_cluster(spec: Spec, source: Source, where: _Where) -> list[Diagnostic]:
    gloo = findings_of(lambda: _gloo(spec, source) if operator_of(spec) == "none" else ())  # an operator sees to it
    found = _in_containers(spec, source, where) + apply(KUBERNETES, spec, source)
    found += _all(lambda: _claims(spec, source), lambda: check_told(spec, source), lambda: _native(spec, source))
    return found + gloo + findings_of(lambda: _fitness(spec, source, where.target))


def _on_hosts(spec: Spec, source: Source, where: _Where) -> list[Diagnostic]:
    found = _in_containers(spec, source, where)
    found += _all(
        lambda: apply(TRAINERS, spec, source),
        lambda: _gloo(spec, source),
        lambda: _native(spec, source),
        lambda: check_certificates(spec, source),
        lambda: check_volume_names(spec, source),
        lambda: _image_of_etcd(spec, source),
        lambda: check_docker_options(spec, source),
        lambda: check_from_hosts(spec, source),
    )
    if where.hosts_path is None:
        message = f"target `{where.target}` needs hosts"
        found.append(Diagnostic("error", "no-hosts", message, source.value_span(()), "name them: `--hosts hosts.txt`"))
    return found + (_with_hosts(spec, source, where.hosts) if where.hosts else [])


def _with_hosts(spec: Spec, source: Source, hosts: Sequence[Host]) -> list[Diagnostic]:
    return _all(
        lambda: _enough(spec, source, hosts),
        lambda: check_addresses(spec, source, [*_places(spec, hosts), *(host for host in hosts if host.spare)]),
        lambda: _roles(spec, source, hosts),
        lambda: _slots(spec, source, hosts),
        lambda: _shared_ids(spec, source, hosts),
        lambda: check_trainers(spec, source, _places(spec, hosts)),
        lambda: check_ports(spec, source, hosts),
    )


def _all(*rules: Callable[[], Iterable[Diagnostic]]) -> list[Diagnostic]:
    return [diagnostic for rule in rules for diagnostic in findings_of(rule)]


def _in_allocation(spec: Spec, source: Source, where: _Where) -> list[Diagnostic]:
    """Return what is wrong in an allocation, where processes run in containers only if the spec says so."""
    return apply((*SLURM, *TRAINERS), spec, source) + _all(
        lambda: check_options(spec, source),
        lambda: check_enroot_paths(spec, source, where.directory),
        lambda: _gloo(spec, source),
        lambda: _native(spec, source),
        lambda: _image(spec, source, where.target) if in_container(spec) else check_node_paths(spec, source),
        lambda: _image_name(source, spec.image, "image") if has_image_name(spec) else (),
        lambda: check_docker_options(spec, source) if has_engine(spec) else (),
        lambda: check_relative_sources(spec, source) if in_container(spec) else (),
        lambda: _script_not_sent(spec, source, where.directory, _home_of_script(spec)) if _sends(spec) else (),
        lambda: _outputs_not_kept(spec, source) if _sends(spec) else (),
        lambda: _fitness(spec, source, where.target),
    )


CHECKS: Mapping[PlaceKind, Callable[[Spec, Source, _Where], list[Diagnostic]]] = {
    "machine": _on_this_machine,
    "hosts": _on_hosts,
    "cluster": _in_cluster,
    "allocation": _in_allocation,
}


def _home_of_script(spec: Spec) -> str:
    return "in the image" if in_container(spec) else "there already"


def _sends(spec: Spec) -> bool:
    """Say whether the nodes have no more of the spec's folder than what is sent."""
    return in_container(spec) or (spec.slurm is not None and spec.slurm.login is not None)


# On this machine.


def _processes(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    # Of servers nobody can tell how busy they are.
    processes = spec.ps.trainers if spec.ps else spec.nodes.max * (spec.devices.count or 1)
    cores = os.cpu_count() or 1
    if spec.devices.kind == "cpu" and spec.per == "process" and processes > cores:
        message = f"{processes} {'trainers' if spec.ps else 'processes'} on a machine of {cores} cores will be slow"
        wheres: tuple[tuple[str, ...], ...] = (("ps", "trainers"), ("nodes",))
        where = next((where for where in wheres if source.has(where)), ("devices",))
        yield Diagnostic("warning", "more-processes-than-cores", message, source.value_span(where))


def _local_script(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """A script with an absolute path is in the image, but there is no image here."""
    if spec.script is not None and spec.script.startswith("/") and not os.path.isfile(spec.script):
        message = f"there is no file `{spec.script}` on this machine"
        yield Diagnostic("warning", "file-not-found", message, source.value_span(("script",)))


def _fitness(spec: Spec, source: Source, target: TargetName) -> Iterator[Diagnostic]:
    if spec.fitness != "off":
        message, hint = (
            f"jobctl measures no hosts on target `{target}`: this has no effect",
            "name hosts: `--hosts hosts.txt`",
        )
        yield Diagnostic("warning", "fitness-not-measured", message, source.key_span(("fitness",)), hint)


# Wherever our launcher starts the processes on more than one machine.


def _gloo(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    if spec.framework != "paddle" or spec.ps is None or spec.ps.gloo not in (1, 2):
        return
    if spec.checkpoint is None or not spec.checkpoint.shared:
        message = (
            "with `gloo` trainers meet in a folder of the checkpoint directory, and there is none that all hosts see"
        )
        hint = "add `checkpoint: /path/that/all/hosts/see`: `up` refuses the job without"
        yield Diagnostic("warning", "gloo-without-checkpoint", message, source.key_span(("ps", "gloo")), hint)


def _native(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    if spec.framework != "mindspore" or spec.mindspore is None or spec.mindspore.recovery != "native":
        return
    if spec.checkpoint is None or not spec.checkpoint.shared:
        message = "mindspore's own recovery keeps files where all hosts see them, and no such folder is known"
        hint = "add `checkpoint: /path/that/all/hosts/see`: `up` refuses the job without"
        where = source.value_span(("mindspore", "recovery"))
        yield Diagnostic("warning", "native-recovery-unshared", message, where, hint)


# In containers.


def _image(spec: Spec, source: Source, target: TargetName) -> Iterator[Diagnostic]:
    builds = TARGETS[target].takes_hosts
    if not spec.image and not (builds and spec.build):
        hint = f"add `image: …`{' or `build: .`' if builds else ''}, or use `--target local`"
        yield Diagnostic("error", "image-missing", "containers need an `image`", source.value_span(("image",)), hint)


# What engines and Kubernetes take: github.com/distribution/reference, regexp.go.
_REGISTRY = (
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])"
)
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_REGISTRY}(?::[0-9]+)?/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)


def _image_name(source: Source, image: str | None, *where: str) -> Iterator[Diagnostic]:
    if image and not _IMAGE.fullmatch(image):
        message = f"`{image}` is not a valid image name"
        hint = "write `[REGISTRY[:PORT]/]NAME[:TAG]`; the name has lower-case letters, digits, `.`, `_`, `-` and `/`"
        yield Diagnostic("error", "bad-image", message, source.value_span(where), hint)


def _image_of_etcd(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    managed = spec.etcd.managed if spec.etcd else None
    yield from _image_name(source, managed.image if managed else None, "etcd", "managed", "image")


def _outputs_not_kept(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    if spec.outputs and spec.code is None:
        message = "`outputs` are in the folder of `code`, and there is none: nothing keeps or fetches them"
        hint = "add `code: .`, or write to a volume"
        yield Diagnostic("warning", "outputs-not-kept", message, source.value_span(("outputs",)), hint)


def _claims(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """A volume with a name is a PersistentVolumeClaim there."""
    for number, volume in enumerate(spec.volumes):
        if volume.kind == "volume" and volume.source and not is_object(volume.source):
            message = f"`{volume.source}` is not a valid name for a PersistentVolumeClaim, which this volume is there"
            yield Diagnostic(
                "error", "kubernetes-claim", message, source.value_span(("volumes", number, "source")), OBJECT_HINT
            )


def _script_not_sent(spec: Spec, source: Source, directory: Path, place: str = "in the image") -> Iterator[Diagnostic]:
    if _not_sent(spec, directory):
        message = f"nothing sends `{spec.script}` to the hosts: it must be {place}"
        yield Diagnostic("warning", "script-not-sent", message, source.value_span(("script",)), "add `code: .`")


def _not_sent(spec: Spec, directory: Path) -> bool:
    """Say whether the script is beside the spec while neither code nor a volume brings it to the hosts."""
    script = spec.script
    if script is None or spec.code is not None or not os.path.isfile(directory / script):
        return False
    where = PurePosixPath(directory / script)
    sources = [PurePosixPath(volume.source) for volume in spec.volumes if volume.source and volume.kind == "bind"]
    return not any(source == where or source in where.parents for source in sources)


# With hosts.


def _enough(spec: Spec, source: Source, hosts: Sequence[Host]) -> Iterator[Diagnostic]:
    roles = ("trainer", "server") if spec.ps else ("trainer",)
    room = sum(host.nodes for host in hosts if not host.spare and any(host.takes(role) for role in roles))
    if spec.nodes.min > room:
        few = any(one.hosts for one in spec.data)
        where = "hosts that get the `data` have room" if few else "the hosts file has room"
        message = f"{spec.nodes.min} nodes, and {where} for {room}"
        hint = "add hosts, or lower `nodes`" + ("; spares do not count" if any(h.spare for h in hosts) else "")
        yield Diagnostic("error", "too-few-hosts", message, source.value_span(("nodes", "min")), hint)


def _roles(spec: Spec, source: Source, hosts: Sequence[Host]) -> Iterator[Diagnostic]:
    """Each role of mode `ps` needs a host that takes it, among the first that the job uses."""
    if spec.ps is None:
        return
    able = [host for host in hosts if not host.spare and (host.trains or host.takes("server"))]
    every = [host for host in able for _ in range(host.nodes)]
    places = every[: spec.nodes.max]
    for role in ("server", "trainer"):
        if places and not any(host.takes(role) for host in places):
            what = f"the first {len(places)} hosts take" if len(places) > 1 else f"{places[0].name} takes"
            later = next((number for number, host in enumerate(every) if host.takes(role)), None)
            hint = f"give one `roles={role}`, or no roles"
            if later is not None:
                name = every[later].name
                hint = f"{name} takes them: use `nodes: {later + 1}`, or name it earlier in the hosts file"
            where = source.value_span(("ps", f"{role}s"))
            yield Diagnostic("error", "no-host-for-role", f"the job has {role}s, and {what} none", where, hint)


def _slots(spec: Spec, source: Source, hosts: Sequence[Host]) -> Iterator[Diagnostic]:
    if spec.devices.kind == "cpu":
        return
    for host in hosts:
        if not host.trains:  # nothing that uses devices comes there
            continue
        has = len(host.devices) if host.devices is not None else host.slots
        if has is None:
            continue
        share = has // host.nodes
        able = range(has) if host.devices is None else host.devices
        beyond = next((number for number in spec.devices.ids or () if number not in able), None)
        if beyond is not None:
            what = f"beyond the {has} slots" if host.devices is None else "not among the `devices=`"
            message = f"device {beyond} is {what} of {host.name}"
            yield Diagnostic("error", "ids-beyond-slots", message, source.value_span(("devices", "ids")))
            return
        if (spec.devices.count or 0) > share:
            message = f"{spec.devices.count} devices a node, and {host.name} has {share} for each of its nodes"
            yield Diagnostic("error", "too-few-devices", message, source.value_span(("devices", "count")))
            return
        if not share and spec.devices.ids is None and spec.ps is None and host in _places(spec, hosts):
            message = f"{host.name} takes {host.nodes} nodes, and has {counted(has, 'device')} for them"
            hint = f"lower `nodes=` of {host.name} in the hosts file"
            yield Diagnostic("error", "too-few-devices", message, source.value_span(("devices",)), hint)
            return


def _shared_ids(spec: Spec, source: Source, hosts: Sequence[Host]) -> Iterator[Diagnostic]:
    """The nodes of one host split its devices, but `ids` are the same for each node."""
    left = min(spec.nodes.max, spec.ps.trainers) if spec.ps else spec.nodes.max
    for host in hosts if spec.devices.ids is not None else ():
        if host.spare or not host.trains:
            continue
        nodes = min(host.nodes, left)
        left -= nodes
        if nodes > 1:
            message = f"{nodes} nodes on {host.name}, and each would use the same devices"
            hint = "give `count` in place of `ids`, or have each host take one node"
            yield Diagnostic("error", "shared-devices", message, source.value_span(("devices", "ids")), hint)
            return


def _places(spec: Spec, hosts: Sequence[Host]) -> list[Host]:
    """Return the hosts that a new job uses, each as often as it takes a node."""
    roles = ("trainer", "server") if spec.ps else ("trainer",)
    able = (host for host in hosts if not host.spare and any(host.takes(role) for role in roles))
    return list(islice((host for host in able for _ in range(host.nodes)), spec.nodes.max))
