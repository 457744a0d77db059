"""The table of what `check` looks at on each host: each check reads what was found out, and says what a user does about it.

docs/check.md has a section for each code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from jobctl.jobspec.deploy.check.probing import framework_findings
from jobctl.jobspec.deploy.check.survey import (
    CheckedHost,
    Found,
    Survey,
    binds,
    etcd_port_taken,
    rendezvous_port_taken,
)
from jobctl.jobspec.deploy.host.ports import used_ports
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.finding import Finding, Verdict
from jobctl.jobspec.planner.memory import SHM_SIZE
from jobctl.jobspec.spec.hosts import is_address
from jobctl.jobspec.spec.targets import traits_of

LITTLE, TOO_LITTLE = 2 << 20, 100 << 10  # KiB of disk
# KiB that a process takes which has imported its framework: PyTorch, JAX 150 to 220 MiB, more with further modules.
IMPORTED = 256 << 10

# Each check yields one finding at least, where it can tell anything.


def _ssh(run: Survey, seat: CheckedHost) -> Found:
    if seat.facts is None:
        return
    yield Finding(seat.name, "ssh", "ok", "on this machine" if seat.host_job.host.local else "answers")
    if "tools" not in seat.facts.values:
        yield Finding(
            seat.name,
            "tools",
            "error",
            "there is no `flock` or no `timeout` on its PATH",
            "tools-missing",
            "install util-linux and coreutils there",
        )
    if "writable" not in seat.facts.values:
        yield Finding(
            seat.name,
            "work-directory",
            "error",
            f"cannot write into {seat.host_job.work.parent.parent}",
            "dir-not-writable",
            "choose another directory with `dir=` in the hosts file",
        )


def _engine_version(run: Survey, seat: CheckedHost) -> Found:
    if seat.engine is None:
        return
    if seat.engine.too_old:
        text = f"{seat.engine.name} {seat.engine.version} is older than {seat.engine.too_old}"
        yield Finding(seat.name, "engine", "error", text, "engine-old", "install a newer one there")
        return
    yield Finding(seat.name, "engine", "ok", str(seat.engine))
    for lack in seat.engine.lacks():
        yield Finding(seat.name, "engine", "warning", lack.text, lack.code, lack.hint)


def _compose(run: Survey, seat: CheckedHost) -> Found:
    if seat.engine is None or not traits_of(seat.host_job.target).uses_compose:
        return
    version = ("compose", "version", "--short")
    result = seat.host_job.transport.run(SCRIPTS.argv("compose", "/dev/null", "", "", *seat.host_job.docker, *version))
    if result.code == 0:
        yield Finding(seat.name, "compose", "ok", f"Compose {result.out.decode().strip()}")
    else:
        hint = "install the Compose plugin there (https://docs.docker.com/compose/install/), or use `--target ssh`"
        yield Finding(seat.name, "compose", "error", "it has no Compose plugin", "compose-missing", hint)


def _image_there(run: Survey, seat: CheckedHost) -> Found:
    if seat.nodes and seat.engine is not None and not run.failed(seat, "image"):
        image = seat.nodes[0].container.image
        pulled = "is built first" if run.builds(image) else "can be pulled"
        copied = f"is copied from {seat.image_sources[0]}" if seat.image_sources else pulled
        yield Finding(seat.name, "image", "ok", f"{image} {'is there' if seat.image else copied}")


def _mounts(run: Survey, seat: CheckedHost) -> Found:
    if seat.facts is None:
        return
    for path in dict.fromkeys(mount.source for mount in binds(run.plan, seat.nodes)):
        if path in seat.facts.there:
            continue
        if any(path == mount.source for node in seat.nodes for mount in node.container.mounts):
            hint = "make it there: jobctl creates nothing in its place"
            yield Finding(seat.name, "volumes", "error", f"there is no {path}", "no-such-path", hint)
        else:
            hint = "install the driver of its devices on the host, or name a container runtime: `container.runtime`"
            yield Finding(seat.name, "devices", "error", f"there is no {path}", "driver-missing", hint)
    for path, problem in (seat.probe or {}).get("paths", {}).items():
        if problem:
            check = "checkpoint" if run.plan and run.plan.checkpoint and path == run.plan.checkpoint.dir else "volumes"
            hint = "change its owner or mode there, or the container's user: `container.user`"
            yield Finding(seat.name, check, "error", f"{path} {problem} in the container", "path-no-permission", hint)


def _driver(run: Survey, seat: CheckedHost) -> Found:
    if seat.driver_hangs:
        verdict: Verdict = "error" if seat.kind == "gpu" else "warning"
        text, hint = "`nvidia-smi` does not answer there within 20 s", "its driver or a GPU hangs: restart the host"
        yield Finding(seat.name, "devices", verdict, text, "driver-broken", hint)


def _devices(run: Survey, seat: CheckedHost) -> Found:
    for node in seat.nodes[:1]:
        wanted = node.container.devices
        if wanted.kind == "cpu" or seat.probe is None:
            return
        has, need = seat.probe["devices"], len(wanted.ids or ())
        if seat.probe["driver"]:
            hint = "does `nvidia-smi` work on the host? The NVIDIA Container Toolkit brings the driver into containers"
            yield Finding(seat.name, "devices", "error", seat.probe["driver"], "driver-broken", hint)
        elif has < need:
            text = f"a container sees {has} of {need} devices of kind `{wanted.kind}`"
            hint = "is the driver loaded on the host, and the vendor's container runtime installed?"
            yield Finding(seat.name, "devices", "error", text, "devices-missing", hint)
        else:
            yield Finding(seat.name, "devices", "ok", f"{has} of kind `{wanted.kind}` in a container")


def _idle(run: Survey, seat: CheckedHost) -> Found:
    used = {**(seat.busy or {})}
    mine = {f"{node.container.devices.kind}:{i}" for node in seat.nodes for i in node.container.devices.ids or ()}
    for index, process in (seat.facts.busy if seat.facts else {}).items():
        used.setdefault(f"gpu:{index}", f"process {process}")
    job = run.plan.job if run.plan else ""
    others = {device: who for device, who in used.items() if device in mine and who.split(" ")[0] != job}
    if not others:
        return
    yield Finding(
        seat.name,
        "idle",
        "error",
        "in use: " + ", ".join(f"{device} by {who}" for device, who in sorted(others.items())),
        "devices-busy",
        "wait for it, choose others (`devices=` in the hosts file), or other hosts: `jobctl list --hosts` shows what is free",
    )


def _ports(run: Survey, seat: CheckedHost) -> Found:
    plan = run.plan
    if plan is None or plan.rendezvous.port is None:
        return
    meeting = next((node for node in plan.nodes if node.launch.meets), plan.nodes[0])
    if meeting.index not in [node.index for node in seat.nodes]:
        return
    with contextlib.suppress(HostError):
        if plan.rendezvous.port in used_ports(seat.host_job) and not seat.host_job.containers.seen():
            yield rendezvous_port_taken(seat.name, plan.rendezvous.port)


def _service_ports(run: Survey, seat: CheckedHost) -> Found:
    if seat.facts is None or not seat.services:
        return
    with contextlib.suppress(HostError):
        running = {container.service for container in seat.host_job.containers.seen() if container.running}
        wanted = {port for s in seat.services if s.name not in running for port in (s.port, s.port + 1)}
        for port in sorted(wanted & used_ports(seat.host_job)):
            yield etcd_port_taken(seat.name, port)


def _listens(run: Survey, seat: CheckedHost) -> Found:
    meeting = (seat.probe or {}).get("meet")
    if meeting is not None and meeting["taken"]:
        text = "the ports at which hosts try to reach each other were taken all the while: that was not tried"
        hint = "does another check of the job run? Try again; `rendezvous.port` leaves no choice of ports"
        yield Finding(seat.name, "network", "warning", text, "port-taken", hint)
    elif meeting is not None and meeting["listen"]:
        text = f"cannot listen at {seat.nodes[0].host.address}: {meeting['listen']}"
        hint = "is that its address? `addr=` in the hosts file says where the other nodes reach it"
        yield Finding(seat.name, "network", "error", text, "address-wrong", hint)


def _interface(run: Survey, seat: CheckedHost) -> Found:
    if seat.facts is None or not seat.nodes:
        return
    wanted = seat.nodes[0].launch.interface
    address = seat.nodes[0].host.address
    if wanted is not None and wanted not in seat.facts.mtu:
        text = f"there is no network interface `{wanted}`; it has {', '.join(sorted(seat.facts.mtu))}"
        hint = "`network.interface` in the spec, or `interface=` in the hosts file"
        yield Finding(seat.name, "interface", "error", text, "no-such-interface", hint)
    elif seat.facts.addresses and is_address(address) and seat.facts.interface_at(address) is None:
        text = f"none of its interfaces has the address {address}"
        hint = "`addr=` in the hosts file says where the other nodes reach it"
        yield Finding(seat.name, "interface", "error", text, "address-wrong", hint)


def _names_resolve(run: Survey, seat: CheckedHost) -> Found:
    if seat.facts is None:
        return
    for name, address in seat.facts.names.items():
        if not address or address.startswith("127."):
            text = f"{name} {'is ' + address if address else 'cannot be resolved'} there"
            hint = "give addresses: `addr=` in the hosts file; or fix its DNS or /etc/hosts"
            yield Finding(seat.name, "names", "error", text, "name-unresolved", hint)
    if seat.probe is not None and seat.probe["name"] is None:
        hint = "give addresses: `addr=` in the hosts file"
        yield Finding(
            seat.name,
            "names",
            "warning",
            "a container's own name cannot be resolved in it",
            "own-name-unresolved",
            hint,
        )
    if seat.probe is not None and seat.probe["silent"]:
        text = (
            "in a container, the name server does not answer for the name of an address, and PyTorch asks at each start"
        )
        hint = "fix /etc/resolv.conf there, or wait less: `env: {RES_OPTIONS: 'timeout:1 attempts:1'}`"
        yield Finding(seat.name, "names", "warning", text, "dns-silent", hint)


def _room(run: Survey, seat: CheckedHost) -> Found:
    if seat.facts is None:
        return
    free = seat.facts.number("free")
    if free is not None and free < LITTLE:
        text = f"{free >> 10} MiB of disk left where {seat.host_job.work.parent} lies"
        hint = "make room there, or choose another directory with `dir=` in the hosts file"
        verdict: Verdict = "error" if free < TOO_LITTLE else "warning"
        yield Finding(seat.name, "disk", verdict, text, "disk-low", hint)
    total = seat.facts.number("memory-MemTotal:")
    wanted = sum(node.container.memory or 0 for node in seat.nodes) >> 10
    if total is not None and wanted > total:
        text = f"`resources.memory` asks for {wanted >> 10} MiB, and it has {total >> 10}"
        yield Finding(seat.name, "memory", "error", text, "memory-low", "ask for less, or leave `resources.memory` out")
    said = (node.container.shm_size for node in seat.nodes if node.container.shm_size != SHM_SIZE)
    shm = sum(size or 0 for size in said) >> 10
    if total is not None and shm > total:
        text = f"`resources.shm_size` is {shm >> 10} MiB, and it has {total >> 10} of memory"
        yield Finding(seat.name, "shm", "warning", text, "shm-large", "shared memory is memory: lower it")


def _standby(run: Survey, seat: CheckedHost) -> Found:
    """Say what the standby of the nodes takes, or of the spare that waits here."""
    spares = run.plan.spares if run.plan is not None else ()
    free, needs = seat.facts.number("memory-MemAvailable:") if seat.facts else None, 0
    for node in (*seat.nodes, *(spare for spare in spares if spare.host.name == seat.name and spare not in seat.nodes)):
        if node.launch.standby is not None and not node.launch.standby.off:
            needs += IMPORTED * (node.launch.nproc + bool(node.launch.start))
    if needs and free is not None:
        text = f"standby takes about {needs >> 10} MiB of the {free >> 10} MiB of memory that are free"
        yield Finding(seat.name, "standby", "ok", text if needs < free else f"{text}: it will be off")


def _limits(run: Survey, seat: CheckedHost) -> Found:
    if seat.probe is None or not seat.nodes:
        return
    if "infiniband" in (seat.facts.values if seat.facts else {}) and 0 <= seat.probe["memlock"] < 1 << 30:
        text = f"locked memory is limited to {seat.probe['memlock']} bytes, and RDMA registers all its buffers"
        yield Finding(seat.name, "memlock", "warning", text, "memlock-small", "leave out `resources.ulimits.memlock`")
    if tuple(seat.probe["python"]) < (3, 8):
        text = f"the image's Python is {'.'.join(map(str, seat.probe['python']))}"
        hint = "jobctl needs 3.8 or later: `container.python` names another interpreter"
        yield Finding(seat.name, "image", "error", text, "python-old", hint)


def _framework(run: Survey, seat: CheckedHost) -> Found:
    if seat.probe is not None and run.plan is not None:
        yield from framework_findings(run, seat.name, seat.nodes[0], seat.probe)


OF_ONE: tuple[Callable[[Survey, CheckedHost], Found], ...] = (
    _ssh,
    _engine_version,
    _compose,
    _image_there,
    _mounts,
    _driver,
    _devices,
    _idle,
    _ports,
    _service_ports,
    _listens,
    _interface,
    _names_resolve,
    _room,
    _standby,
    _limits,
    _framework,
)
