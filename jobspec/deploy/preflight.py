"""Preflight: is every host fit for the job? All hosts side by side, one verdict for each host and check.

Each check is a row of a table: what it looks at, and what a user does about what it finds (docs/check.md has a section
for each code). Nothing of the job is changed; what is left on hosts while looking is removed again.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

from jobctl.jobspec.deploy import facts, images
from jobctl.jobspec.deploy.devices import devices_in_use
from jobctl.jobspec.deploy.errors import DeployError
from jobctl.jobspec.deploy.facts import Facts
from jobctl.jobspec.deploy.fanout import fan_out
from jobctl.jobspec.deploy.ports import used_ports
from jobctl.jobspec.deploy.site import Site
from jobctl.jobspec.deploy.transport import HostError
from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.plan.generation import next_port
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.render.container import host_mounts, is_address
from jobctl.jobspec.render.shell import Look, look_script

Verdict = Literal["ok", "warning", "error", "skipped"]
Json = dict[str, Any]

SKEW = 0.5  # seconds between the clocks of two hosts
LITTLE, TOO_LITTLE = 2 << 20, 100 << 10  # KiB of disk
MEETING = 5.0  # seconds in which all hosts have to reach each other
OLDEST_ENGINE = (20, 10)  # host-gateway, device requests, API 1.41


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict about one host. `code` is stable where something is wrong, `hint` says what to do about it."""

    host: str
    check: str
    verdict: Verdict
    message: str
    code: str | None = None
    hint: str | None = None


@dataclass(eq=False)
class Seat:
    """A host, what it is needed for, and what was found out about it so far."""

    site: Site
    nodes: tuple[Node, ...]
    facts: Facts | None = None
    engine: Json | None = None
    image: str | None = None
    probe: Json | None = None
    busy: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """The host's name."""
        return self.site.host.name


Found = Iterator[Finding]


class Preflight:
    """The checks of one job (or, with no plan, of bare hosts)."""

    def __init__(self, sites: Sequence[Site], plan: Plan | None, *, deep: bool = False) -> None:
        self.plan, self.deep = plan, deep
        nodes = plan.nodes if plan else ()
        self.seats = [Seat(site, tuple(n for n in nodes if n.host.name == site.host.name)) for site in sites]
        self.findings: list[Finding] = []
        self.token = secrets.token_hex(4)

    def run(self) -> list[Finding]:
        """Look at all hosts; return the findings, by host in the order of the hosts file."""
        self._everywhere("ssh", self._meet)
        self._everywhere("engine", self._engine)
        if self.plan is not None:
            self._everywhere("image", self._image)
            self._everywhere("devices", self._in_use)
        try:
            self._sharing()
            if self.plan is not None:
                self._everywhere("container", self._container)
        finally:
            fan_out([seat for seat in self.seats if seat.facts], lambda seat: facts.forget(seat.site, self._mine(seat)))
        for seat in self.seats:
            for check in _OF_ONE:
                self.findings += check(self, seat)
        for compare in _OF_ALL:
            self.findings += compare(self, [seat for seat in self.seats if seat.facts])
        order = {seat.name: number for number, seat in enumerate(self.seats)}
        return sorted(self.findings, key=lambda finding: order.get(finding.host, -1))

    def _mine(self, seat: Seat) -> str:
        return f"{self.token}-{seat.site.folder}"

    def _everywhere(self, check: str, task: Callable[[Seat], None]) -> None:
        """Do something on all hosts that have not failed yet; an error of a host is its finding."""
        outcome = fan_out([seat for seat in self.seats if seat.name not in self._out], task)
        for seat, error in outcome.failed.items():
            self.findings.append(_of_error(seat.name, check, error))

    @property
    def _out(self) -> set[str]:
        return {f.host for f in self.findings if f.verdict == "error" and f.check in ("ssh", "engine")}

    # Looking.

    def _meet(self, seat: Seat) -> None:
        paths = sorted({mount.source for mount in _binds(None, seat.nodes)})
        names = sorted({node.host.address for node in self.plan.nodes} if self.plan else ())
        seat.facts = facts.ask(seat.site, self._mine(seat), paths, [name for name in names if not is_address(name)])

    def _engine(self, seat: Seat) -> None:
        try:
            seat.engine = {**seat.site.client.info(), **seat.site.client.version()}
        except HostError:
            raise
        except Exception as error:
            raise seat.site.engine_failed(error) from error

    def _image(self, seat: Seat) -> None:
        if not seat.nodes:
            return
        container = seat.nodes[0].container
        seat.image = images.image_id(seat.site, container.image)
        if container.pull == "never" and seat.image is None:
            images.ensure(seat.site, container)
        if container.pull == "always" or (container.pull == "missing" and seat.image is None):
            images.can_be_pulled(seat.site, container.image)

    def _in_use(self, seat: Seat) -> None:
        seat.busy = devices_in_use(seat.site) if seat.nodes else {}

    def _sharing(self) -> None:
        """Have every host look for the tokens of all others."""
        there = [seat for seat in self.seats if seat.facts and seat.name not in self._out]
        tokens = {self._mine(seat): seat.name for seat in there}
        outcome = fan_out(there, lambda seat: facts.visible(seat.site, list(tokens)))
        for seat, seen in outcome.done.items():
            others = sorted(tokens[token] for token in seen if tokens[token] != seat.name)
            if others:
                own = seat.facts.values.get("own") if seat.facts else ""
                text = f"its work directory is shared with {', '.join(others)}; locks and secrets go to {own}"
                if own == (seat.facts.values.get("work") if seat.facts else ""):
                    text = f"its work directory is shared with {', '.join(others)}: folders are apart, secrets are not"
                    hint = "give each host a directory of its own with `dir=` in the hosts file"
                    self.findings.append(Finding(seat.name, "work-directory", "warning", text, "dir-shared", hint))
                else:
                    self.findings.append(Finding(seat.name, "work-directory", "ok", text))
        self._checkpoint(there)

    def _checkpoint(self, there: Sequence[Seat]) -> None:
        """Write a token into the checkpoint directory on each host, and read all of them on each."""
        if self.plan is None or self.plan.checkpoint is None:
            return
        where, homes = self.plan.checkpoint.dir, [seat for seat in there if seat.nodes]
        outcome = fan_out(homes, lambda seat: facts.mark(seat.site, where, self._mine(seat)))
        for seat, error in outcome.failed.items():
            self.findings.append(_of_error(seat.name, "checkpoint", error))
        marked = [seat for seat in homes if seat in outcome.done]
        try:
            if not self.plan.checkpoint.shared or len(marked) < 2:
                return
            tokens = {self._mine(seat): seat.name for seat in marked}
            seen = fan_out(marked, lambda seat: facts.marks(seat.site, where, list(tokens)))
            for seat, found in seen.done.items():
                missing = sorted(name for token, name in tokens.items() if token not in found)
                if missing:
                    self.findings.append(
                        Finding(
                            seat.name,
                            "checkpoint",
                            "error",
                            f"{where} is not shared: what {_names(missing)} wrote is not there",
                            "checkpoint-not-shared",
                            "mount the same storage there on every host, or say `checkpoint: {dir: …, shared: false}`",
                        )
                    )
        finally:
            fan_out(marked, lambda seat: facts.unmark(seat.site, where, self._mine(seat)))

    # Inside of a container.

    def _container(self, seat: Seat) -> None:
        plan = self.plan
        if plan is None or not seat.nodes or seat.image is None or self._mounts_missing(seat):
            return
        node = seat.nodes[0]
        command = (node.container.python, "-c", _source(), json.dumps(self._task(seat, node)))
        name = f"jobctl-{plan.job}-look-{self.token}"
        script = look_script(plan, node, name, str(seat.site.work), command, Look())
        result = seat.site.run_script(script)
        if result.code != 0:
            raise seat.site.cannot_start("start a container like the job's", result)
        with contextlib.suppress(ValueError, IndexError):
            seat.probe = json.loads(result.out.decode().splitlines()[-1])

    def _mounts_missing(self, seat: Seat) -> bool:
        return seat.facts is not None and any(
            mount.source not in seat.facts.there for mount in _binds(self.plan, seat.nodes)
        )

    def _task(self, seat: Seat, node: Node) -> Json:
        plan = self.plan
        assert plan is not None
        homes = [
            other for other in self.seats if other.nodes and other.image is not None and other.name not in self._out
        ]
        peers = [
            {"host": other.name, "address": other.nodes[0].host.address, "me": seat.name}
            for other in homes
            if other is not seat
        ]
        paths = [(m.target, not m.read_only) for m in node.container.mounts if m.kind == "bind"]
        return {
            "kind": node.container.devices.kind,
            "paths": paths,
            "module": framework(plan.framework).module if self.deep else None,
            "address": node.host.address if is_address(node.host.address) else "",
            "port": self._port if peers else 0,
            "peers": peers,
            "seconds": MEETING,
        }

    @cached_property
    def _port(self) -> int:
        """The port that hosts reach each other at: the job's own, or one of the range that is free on all of them."""
        plan = self.plan
        assert plan is not None
        homes = [seat for seat in self.seats if seat.nodes and seat.name not in self._out]
        taken = list(fan_out(homes, lambda seat: used_ports(seat.site)).done.values())
        if plan.rendezvous.port is not None:
            return 0 if any(plan.rendezvous.port in ports for ports in taken) else plan.rendezvous.port
        # Not the first generation's own: it might be in TIME_WAIT when that begins.
        return next_port(f"{plan.job} check", 0, lambda port: not any(port in ports for ports in taken))


def _source() -> str:
    return files("jobctl.jobspec.deploy").joinpath("probe.py").read_text(encoding="utf-8")


def _binds(plan: Plan | None, nodes: Iterable[Node]) -> list[Any]:
    """Return the bind mounts whose sources have to be there before: all but the checkpoint directory, which is made."""
    made = plan.checkpoint.dir if plan and plan.checkpoint else None
    return [m for n in nodes for m in host_mounts(n.container) if m.kind == "bind" and m.source != made]


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _of_error(host: str, check: str, error: DeployError) -> Finding:
    if isinstance(error, HostError):
        return Finding(host, check, "error", error.cause, error.code, error.hint)
    return Finding(host, check, "error", error.message, "failed", error.hint)


# One host. Each check yields one finding at least, where it can tell anything.


def _ssh(run: Preflight, seat: Seat) -> Found:
    if seat.facts is None:
        return
    yield Finding(seat.name, "ssh", "ok", "on this machine" if seat.site.host.local else "answers")
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
            f"cannot write into {seat.site.work.parent.parent}",
            "dir-not-writable",
            "choose another directory with `dir=` in the hosts file",
        )


def _engine_version(run: Preflight, seat: Seat) -> Found:
    if seat.engine is None:
        return
    version = str(seat.engine.get("Version", "?"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts < OLDEST_ENGINE:
        text = f"Docker Engine {version} is older than {'.'.join(map(str, OLDEST_ENGINE))}"
        yield Finding(seat.name, "engine", "error", text, "engine-old", "install a newer Docker Engine there")
    elif any("rootless" in option for option in seat.engine.get("SecurityOptions") or ()):
        yield Finding(
            seat.name,
            "engine",
            "error",
            "its Docker Engine is rootless: a container's host network is not the host's",
            "engine-rootless",
            "use the system's engine: `docker=unix:///var/run/docker.sock` in the hosts file",
        )
    else:
        yield Finding(seat.name, "engine", "ok", f"Docker Engine {version}")


def _compose(run: Preflight, seat: Seat) -> Found:
    if seat.engine is None or seat.site.target != "compose":
        return
    result = seat.site.transport.run([*seat.site.docker, "compose", "version", "--short"])
    if result.code == 0:
        yield Finding(seat.name, "compose", "ok", f"Compose {result.out.decode().strip()}")
    else:
        hint = "install the Compose plugin there (https://docs.docker.com/compose/install/), or use `--target ssh`"
        yield Finding(seat.name, "compose", "error", "its docker has no Compose plugin", "compose-missing", hint)


def _image_there(run: Preflight, seat: Seat) -> Found:
    if seat.nodes and seat.engine is not None and not _failed(run, seat, "image"):
        image = seat.nodes[0].container.image
        yield Finding(seat.name, "image", "ok", f"{image} {'is there' if seat.image else 'can be pulled'}")


def _failed(run: Preflight, seat: Seat, check: str) -> bool:
    return any(f.host == seat.name and f.check == check and f.verdict == "error" for f in run.findings)


def _mounts(run: Preflight, seat: Seat) -> Found:
    if seat.facts is None:
        return
    for path in dict.fromkeys(mount.source for mount in _binds(run.plan, seat.nodes)):
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


def _devices(run: Preflight, seat: Seat) -> Found:
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


def _idle(run: Preflight, seat: Seat) -> Found:
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


def _ports(run: Preflight, seat: Seat) -> Found:
    plan = run.plan
    if plan is None or plan.rendezvous.port is None or not seat.nodes or seat.nodes[0].index != plan.nodes[0].index:
        return
    with contextlib.suppress(HostError):
        if plan.rendezvous.port in used_ports(seat.site) and not seat.site.containers():
            text = f"port {plan.rendezvous.port} of `rendezvous.port` is taken"
            hint = "choose another, or leave `rendezvous.port` out: a free one is found for each generation"
            yield Finding(seat.name, "ports", "error", text, "port-taken", hint)


def _reach(run: Preflight, seat: Seat) -> Found:
    meeting = (seat.probe or {}).get("meet")
    if meeting is None:
        return
    if meeting["listen"]:
        text = f"cannot listen at {seat.nodes[0].host.address}: {meeting['listen']}"
        hint = "is that its address? `addr=` in the hosts file says where the other nodes reach it"
        yield Finding(seat.name, "network", "error", text, "address-wrong", hint)
    elif meeting["unreached"]:
        told = ", ".join(f"{host} ({why})" for host, why in sorted(meeting["unreached"].items()))
        hint = "is a firewall between them, or the wrong `addr=` in the hosts file? Ports 20000-29999 have to be open"
        yield Finding(seat.name, "network", "error", f"cannot reach {told}", "unreachable-peers", hint)
    else:
        yield Finding(seat.name, "network", "ok", "reaches all others")


def _interface(run: Preflight, seat: Seat) -> Found:
    if seat.facts is None or not seat.nodes:
        return
    wanted = seat.nodes[0].launch.interface
    address = seat.nodes[0].host.address
    if wanted is not None and wanted not in seat.facts.mtu:
        text = f"there is no network interface `{wanted}`; it has {', '.join(sorted(seat.facts.mtu))}"
        hint = "`network.interface` in the spec, or `interface=` in the hosts file"
        yield Finding(seat.name, "interface", "error", text, "no-such-interface", hint)
    elif seat.facts.addresses and is_address(address) and address not in seat.facts.addresses:
        text = f"none of its interfaces has the address {address}"
        hint = "`addr=` in the hosts file says where the other nodes reach it"
        yield Finding(seat.name, "interface", "error", text, "address-wrong", hint)


def _names_resolve(run: Preflight, seat: Seat) -> Found:
    if seat.facts is None:
        return
    for name, address in seat.facts.names.items():
        if not address or address.startswith("127."):
            text = f"{name} {'is ' + address if address else 'cannot be resolved'} there"
            hint = "give addresses: `addr=` in the hosts file; or mend its DNS or /etc/hosts"
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


def _room(run: Preflight, seat: Seat) -> Found:
    if seat.facts is None:
        return
    free = seat.facts.number("free")
    if free is not None and free < LITTLE:
        text = f"{free >> 10} MiB of disk left where {seat.site.work.parent} lies"
        hint = "make room there, or choose another directory with `dir=` in the hosts file"
        verdict: Verdict = "error" if free < TOO_LITTLE else "warning"
        yield Finding(seat.name, "disk", verdict, text, "disk-low", hint)
    total = seat.facts.number("memory-MemTotal:")
    wanted = sum(node.container.memory or 0 for node in seat.nodes) >> 10
    if total is not None and wanted > total:
        text = f"`resources.memory` asks for {wanted >> 10} MiB, and it has {total >> 10}"
        yield Finding(seat.name, "memory", "error", text, "memory-low", "ask for less, or leave `resources.memory` out")
    shm = sum(node.container.shm_size or 0 for node in seat.nodes) >> 10
    if total is not None and shm > total:
        text = f"`resources.shm_size` is {shm >> 10} MiB, and it has {total >> 10} of memory"
        yield Finding(seat.name, "shm", "warning", text, "shm-large", "shared memory is memory: lower it")


def _limits(run: Preflight, seat: Seat) -> Found:
    if seat.probe is None or not seat.nodes:
        return
    shm = seat.probe["shm"]
    node = seat.nodes[0]
    if shm is not None and shm <= 64 << 20 and len(node.launch.devices) > 1 and node.container.devices.kind != "cpu":
        text = f"/dev/shm has {shm >> 20} MiB, and data loaders and NCCL use it for all processes of the node"
        yield Finding(seat.name, "shm", "warning", text, "shm-small", "`resources: {shm_size: 16g}`")
    if "infiniband" in (seat.facts.values if seat.facts else {}) and 0 <= seat.probe["memlock"] < 1 << 30:
        text = f"locked memory is limited to {seat.probe['memlock']} bytes, and RDMA registers all its buffers"
        yield Finding(seat.name, "memlock", "warning", text, "memlock-small", "leave out `resources.ulimits.memlock`")
    if tuple(seat.probe["python"]) < (3, 8):
        text = f"the image's Python is {'.'.join(map(str, seat.probe['python']))}"
        hint = "jobctl needs 3.8 or later: `container.python` names another interpreter"
        yield Finding(seat.name, "image", "error", text, "python-old", hint)
    if run.deep and run.plan is not None:
        module = framework(run.plan.framework).module
        if seat.probe["module"] is None:
            text = f"the image's {node.container.python} cannot import `{module}`"
            yield Finding(seat.name, "framework", "error", text, "framework-missing", "is it the right image?")
        else:
            yield Finding(seat.name, "framework", "ok", f"{module} {seat.probe['module']}")


_OF_ONE: tuple[Callable[[Preflight, Seat], Found], ...] = (
    _ssh,
    _engine_version,
    _compose,
    _image_there,
    _mounts,
    _devices,
    _idle,
    _ports,
    _reach,
    _interface,
    _names_resolve,
    _room,
    _limits,
)


# All hosts against each other.


def _clocks(run: Preflight, seats: Sequence[Seat]) -> Found:
    skews = {seat.name: seat.facts.skew for seat in seats if seat.facts}
    if not skews:
        return
    middle = sorted(skews.values())[len(skews) // 2]
    for seat in seats:
        off = skews[seat.name] - middle
        if abs(off) > SKEW:
            text = f"its clock is {abs(off):.1f} s {'ahead' if off > 0 else 'behind'}"
            hint = "logs of several hosts are merged by time: start chrony or systemd-timesyncd there"
            yield Finding(seat.name, "clock", "warning", text, "clock-skew", hint)


def _images_alike(run: Preflight, seats: Sequence[Seat]) -> Found:
    found = {seat.name: seat.image for seat in seats if seat.image}
    ids = sorted(set(found.values()), key=lambda image: -sum(1 for other in found.values() if other == image))
    if len(ids) < 2:
        return
    for name, image in found.items():
        if image != ids[0]:
            text = f"its image is {image[7:19] if image else ''}, that of most others {(ids[0] or '')[7:19]}"
            yield Finding(
                name, "image", "warning", text, "image-differs", "`pull: always`, or load the same one everywhere"
            )


def _mtus(run: Preflight, seats: Sequence[Seat]) -> Found:
    found: dict[str, int] = {}
    for seat in seats:
        if seat.facts and seat.nodes:
            name = seat.nodes[0].launch.interface or seat.facts.addresses.get(seat.nodes[0].host.address)
            if name is not None and name in seat.facts.mtu:
                found[seat.name] = seat.facts.mtu[name]
    if len(set(found.values())) < 2:
        return
    usual = max(set(found.values()), key=lambda mtu: sum(1 for other in found.values() if other == mtu))
    for host, mtu in found.items():
        if mtu != usual:
            text = f"the MTU of its interface is {mtu}, that of most others {usual}"
            yield Finding(
                host, "interface", "warning", text, "mtu-differs", "large packets vanish: set the same everywhere"
            )


_OF_ALL: tuple[Callable[[Preflight, Sequence[Seat]], Found], ...] = (_clocks, _images_alike, _mtus)
