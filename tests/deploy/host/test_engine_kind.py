"""Which engine a host has, by answers that were recorded of engines, and what follows from that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import engine as host_engine
from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.model.engine_kind import engine_kind, image_content, speaks
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport

# Those of docker-26-rootless-selinux, docker-29, docker-29-selinux and podman-5.4-rootless were not recorded: they have what
# the sources of these engines say.
RECORDED = Path(__file__).parent / "engines"


def recorded(name: str) -> Any:
    """Return what an engine answered."""
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "said", "lacks", "options"),
    [
        ("docker-20.10", "Docker Engine 20.10.24+dfsg1 (image store: layers)", [], ()),
        ("docker-26-containerd", "Docker Engine 26.1.5+dfsg1 (image store: containerd)", [], ()),
        ("docker-29", "Docker Engine 29.0.4 (image store: containerd)", [], ()),
        ("docker-29-selinux", "Docker Engine 29.0.4 (image store: layers, SELinux)", [], ("label=disable",)),
        (
            "docker-26-rootless-selinux",
            "Docker Engine 26.1.5 (image store: layers, rootless, SELinux)",
            ["engine-rootless", "engine-ends-with-session"],
            ("label=disable",),
        ),
        ("podman-4.3", "Podman 4.3.1 (image store: Podman's)", ["engine-no-restart"], ("label=disable",)),
        (
            "podman-4.3-rootless",
            "Podman 4.3.1 (image store: Podman's, rootless)",
            ["engine-ends-with-session", "engine-no-restart"],
            ("label=disable",),
        ),
        (
            "podman-5.4-rootless",
            "Podman 5.4.2 (image store: Podman's, rootless, SELinux)",
            ["engine-ends-with-session", "engine-no-restart"],
            ("label=disable",),
        ),
    ],
)
def test_what_an_engine_says_of_itself(name: str, said: str, lacks: list[str], options: tuple[str, ...]) -> None:
    kind = engine_kind(recorded(name))
    assert (str(kind), [lack.code for lack in kind.lacks()], kind.security_options) == (said, lacks, options)
    assert kind.loads_parts == ("docker" in name)
    assert kind.saves_parts == (name in ("docker-26-rootless-selinux", "docker-29-selinux"))


def test_an_answer_without_anything_is_an_unknown_docker() -> None:
    kind = engine_kind({"SecurityOptions": None})
    assert (str(kind), kind.too_old) == ("Docker Engine ? (image store: layers)", None)


def test_podmans_identity_is_another_one_in_each_answer() -> None:
    told = recorded("podman-4.3")
    assert engine_kind(told).identity == engine_kind({**told, "ID": "another"}).identity


@pytest.mark.parametrize(
    ("server", "kind"), [("Libpod/4.3.1 (linux)", "podman"), ("Docker/26.1.5 (linux)", "docker"), (None, None)]
)
def test_who_answers(server: str | None, kind: str | None) -> None:
    assert speaks(server) == kind


LAYERS = ["sha256:aa", "sha256:bb"]
STORED = {
    "layers": {"Id": "sha256:config", "Config": {"Cmd": ["sh"], "Entrypoint": None, "Env": ["A=1"], "WorkingDir": ""}},
    "containerd": {"Id": "sha256:index", "Config": {"Cmd": ["sh"], "Env": ["A=1"], "Labels": None}},
    "docker-29": {"Id": "sha256:index", "Config": {"Cmd": ["sh"], "Env": ["A=1"]}, "Identity": {"Pull": []}},
    "podman": {"Id": "sha256:config", "Config": {"Cmd": ["sh"], "Entrypoint": [], "Env": ["A=1"], "User": ""}},
}


def told_of(store: str, layers: list[str] = LAYERS) -> dict[str, Any]:
    return {**STORED[store], "Architecture": "amd64", "Os": "linux", "RootFS": {"Layers": layers}}


def test_an_image_is_the_same_in_all_stores() -> None:
    assert len({image_content(told_of(store)) for store in STORED}) == 1


def test_images_of_other_layers_or_variables_differ() -> None:
    usual = image_content(told_of("layers"))
    assert image_content(told_of("layers", LAYERS[:1])) != usual
    assert image_content({**told_of("layers"), "Config": {"Cmd": ["sh"], "Env": ["A=2"]}}) != usual


class Clients(LocalTransport):
    """A host with certain clients, and an engine at a socket."""

    def __init__(self, *clients: str) -> None:
        super().__init__("h1")
        self.clients = clients

    def run(self, *args: Any, **how: Any) -> Result:
        return Result(0, "\n".join([*self.clients, "/run/engine.sock"]).encode(), b"")

    def open_socket(self, path: str) -> Any:
        return path


@pytest.mark.parametrize(
    ("clients", "server", "setting", "command"),
    [
        (("docker",), "Docker/26.1.5 (linux)", None, "docker"),
        (("docker", "podman"), "Docker/26.1.5 (linux)", "unix:///d.sock", "docker -H unix:///d.sock"),
        (("docker", "podman"), "Libpod/4.3.1 (linux)", None, "podman --url unix:///run/engine.sock"),
        (("docker",), "Libpod/4.3.1 (linux)", "unix:///p.sock", "docker -H unix:///p.sock"),
        (("podman",), None, None, "podman --url unix:///run/engine.sock"),
        (("podman",), None, "unix:///p.sock", "podman --url unix:///p.sock"),
        (("podman",), None, "sudo", "sudo -n podman"),
    ],
)
def test_the_client_is_that_of_the_engine(
    clients: tuple[str, ...], server: str | None, setting: str | None, command: str
) -> None:
    engine = Engine(Clients(*clients), setting)
    assert engine.command == host_engine.docker_command(setting)  # nobody has been asked yet
    if setting != "sudo":
        assert engine.dial() == "/run/engine.sock"
    else:
        engine._place = engine._find()
    engine._hear(server)
    assert " ".join(engine.command) == command
