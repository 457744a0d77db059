"""Which engine a host has, by what it says of itself, and all in which engines differ. Pure.

There are two kinds: Docker Engine, and Podman behind the same API. Only what calls their clients (host/engine.py) asks
which one it is, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from jobctl.jobspec.deploy.model.untrusted import as_text, texts
from jobctl.jobspec.records import dataclass

Kind: TypeAlias = Literal["docker", "podman"]
Store: TypeAlias = Literal["layers", "containerd", "podman"]

NAMES: Mapping[Kind, str] = {"docker": "Docker Engine", "podman": "Podman"}
OLDEST: Mapping[Kind, tuple[int, int]] = {
    "docker": (20, 10),  # host-gateway, device requests, API 1.41
    "podman": (4, 3),  # the oldest that was tried
}
# The first whose unit podman-restart starts again what has the policy `unless-stopped`: in others it does for `always` only.
_RESTARTS_AFTER_BOOT = (5, 8)
_TELLS_SELINUX = (4, 6)  # the first that does so in `/info`
_SAVES_PARTS = (25, 0)
_STORES: Mapping[Store, str] = {
    "layers": "image store: layers",
    "containerd": "image store: containerd",
    "podman": "image store: Podman's",
}
CONTENT = "content:"  # what begins a name of an image that no engine knows, and that is the same in all
# What kernels call a processor, as images call it. Others have the same name, or one that nothing is known of.
_PROCESSORS = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "loongarch64": "loong64",
    **dict.fromkeys(("armv6l", "armv7l", "armv8l"), "arm"),
    **dict.fromkeys(("i386", "i486", "i586", "i686"), "386"),
}
_KNOWN_PROCESSORS = frozenset({*_PROCESSORS.values(), "ppc64le", "s390x", "riscv64"})
_32_BIT = {"amd64": "386", "arm64": "arm"}  # what a processor runs, too: engines may be 32-bit programs themselves
NO_LABELS = "label=disable"  # what lets a container into the host's folders where SELinux enforces


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that is not possible with an engine: the code of a warning, its words, and the remedy."""

    code: str
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine. `identity` tells it from all others on whatever machine, `root` from others on its own; empty: not known.

    `processor` is its host's, as images call it.
    """

    kind: Kind
    version: str
    store: Store
    rootless: bool = False
    selinux: bool = False
    identity: str = ""
    root: str = ""
    processor: str = ""

    @property
    def name(self) -> str:
        """What users call it."""
        return NAMES[self.kind]

    def __str__(self) -> str:
        more = [_STORES[self.store], *(["rootless"] if self.rootless else []), *(["SELinux"] if self.selinux else [])]
        return f"{self.name} {self.version} ({', '.join(more)})"

    @property
    def too_old(self) -> str | None:
        """The oldest version that jobctl works with, if this one is older."""
        oldest = OLDEST[self.kind]
        return ".".join(map(str, oldest)) if () < _numbers(self.version) < oldest else None

    @property
    def loads_parts(self) -> bool:
        """Whether it loads an image of which it was sent only the layers that it lacks."""
        return self.kind == "docker"

    @property
    def saves_parts(self) -> bool:
        """Whether layers can always be left out of an image that it saves: they bear the names by which other engines know them.

        From version 25 on a store of layers does so. In containerd's, only layers do that are not compressed.
        """
        return self.kind == "docker" and self.store == "layers" and _numbers(self.version) >= _SAVES_PARTS

    @property
    def security_options(self) -> tuple[str, ...]:
        """What containers need beside what their artefacts say, as for `docker run --security-opt`: one at most.

        Where an engine does not tell whether SELinux is on, they get it: it does nothing where SELinux is off.
        """
        silent = self.kind == "podman" and _numbers(self.version) < _TELLS_SELINUX
        return (NO_LABELS,) if self.selinux or silent else ()

    @property
    def login(self) -> str:
        """The UID:GID in containers of the user who logs in to the host; empty: the same as on the host."""
        return "0:0" if self.rootless else ""

    def lacks(self) -> Iterator[Lack]:
        """Yield what is not possible with it."""
        if self.rootless and self.kind == "docker":
            yield Lack(
                "engine-rootless",
                "it is rootless: what its containers call the host's network may be a network of their own",
                "use the system's engine: `docker=unix:///var/run/docker.sock` in the hosts file",
            )
        if self.rootless:
            yield Lack(
                "engine-ends-with-session",
                "it is rootless: where its user does not linger, containers end when they log out",
                "`loginctl enable-linger` there",
            )
        if self.kind == "podman" and _numbers(self.version) < _RESTARTS_AFTER_BOOT:
            yield Lack(
                "engine-no-restart",
                f"Podman {self.version} does not start containers again when the host has booted: a supervisor does, or `jobctl up`",
                _RESTARTS[self.rootless],
            )


_RESTARTS = {
    rootless: f"keep a supervisor running, or have `podman start --all --filter restart-policy=unless-stopped` run at boot: "
    f"`systemctl {'--user ' if rootless else ''}edit podman-restart`"
    for rootless in (False, True)
}


def speaks(server: str | None) -> Kind | None:
    """Return which kind an answer is from, by its header `Server`; None where that says nothing."""
    return None if not server else "podman" if server.startswith("Libpod/") else "docker"


def engine_kind(info: Mapping[str, Any]) -> EngineKind:
    """Return what an engine is that answers `/info` with this."""
    kind: Kind = "podman" if "BuildahVersion" in info else "docker"
    options = " ".join(map(str, info.get("SecurityOptions") or ()))
    drivers = json.dumps(info.get("DriverStatus") or ())
    store: Store = "containerd" if "io.containerd.snapshotter" in drivers else "layers"
    return EngineKind(
        kind,
        as_text(info.get("ServerVersion")) or "?",
        "podman" if kind == "podman" else store,
        rootless="name=rootless" in options or info.get("Rootless") is True,
        selinux="name=selinux" in options,
        # Podman's ID is another one in each answer.
        identity="podman" if kind == "podman" else as_text(info.get("ID")) or "",
        root=as_text(info.get("DockerRootDir")) or "",
        processor=processor_name(info),
    )


def processor_name(data: Mapping[str, Any]) -> str:
    """Return the processor that an engine says itself or an image to be for, as images call it; empty if it does not say."""
    said = as_text(data.get("Architecture")) or ""
    return _PROCESSORS.get(said, said)


def runs(processor: str, made_for: str) -> bool:
    """Say whether a processor runs what was made for `made_for`, as far as both are known."""
    known = {processor, made_for} <= _KNOWN_PROCESSORS
    return not known or made_for in (processor, _32_BIT.get(processor))


def image_content(data: Mapping[str, Any]) -> str:
    """Return what tells an image from others in any engine, given what one says of it.

    An engine's own id will not do: it is the hash of the configuration in one image store, of the manifest in the other, and
    of two engines with the same image each may have compressed it in its own way.
    """
    config, root = _object(data.get("Config")), _object(data.get("RootFS"))
    parts = [config.get(key) or None for key in ("Env", "Entrypoint", "Cmd", "WorkingDir", "User")]
    text = json.dumps([texts(root.get("Layers")), data.get("Architecture"), data.get("Os"), *parts])
    return f"{CONTENT}{hashlib.sha256(text.encode()).hexdigest()}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
