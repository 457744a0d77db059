"""Whether an engine has room for an image: on engines that a test plays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.images.room import EMPTY, bytes_missing, check_room
from jobctl.jobspec.deploy.model.engine_kind import EngineKind, engine_kind
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.local import LocalTransport

LAYERS = ("sha256:aa", "sha256:bb", "sha256:cc")
STEPS = [{"Size": 3}, {"Size": 0}, {"Size": 20}, {"Size": 100}]  # the newest first


class PlayedEngine:
    """An engine that answers as a test says."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    @contextlib.contextmanager
    def asked(self) -> Iterator[Any]:
        yield SimpleNamespace(
            inspect_image=lambda image: {"Size": 123},
            history=lambda image: self.answers["steps"],
        )

    def kind(self) -> EngineKind:
        return engine_kind(self.answers["info"])

    def answer(self, value: Any, kind: type) -> Any:
        return value


@pytest.mark.parametrize(
    ("shared", "steps", "missing"),
    [
        ((), STEPS, 123),
        (LAYERS[:1], STEPS, 23),
        (LAYERS[:2], STEPS, 3),
        (LAYERS, STEPS, 0),
        (LAYERS[:1], STEPS[:1], 0),  # which layer is how large is not known
        (LAYERS[:1], None, 0),  # what the containerd store answers for an image without a history
    ],
)
def test_only_layers_that_are_missing_need_room(shared: tuple[str, ...], steps: list[Any] | None, missing: int) -> None:
    engine: Any = PlayedEngine(steps=steps)
    assert bytes_missing(engine, "app:1", LAYERS, frozenset(shared)) == missing


def test_empty_layers_do_not_hide_what_the_others_need() -> None:
    """Most Dockerfiles have a step that changes no file, or makes a directory only."""
    engine: Any = PlayedEngine(steps=STEPS)
    layers = ("sha256:aa", EMPTY, "sha256:bb", EMPTY, "sha256:cc")
    assert bytes_missing(engine, "app:1", layers, frozenset({"sha256:aa"})) == 23
    engine = PlayedEngine(steps=[{"Size": 3}, {"Size": 20}, {"Size": 0}, {"Size": 100}])
    assert (
        bytes_missing(engine, "app:1", ("sha256:aa", "sha256:dir", "sha256:bb", "sha256:cc"), frozenset({"sha256:aa"}))
        == 23
    )


def job(info: dict[str, Any]) -> Any:
    engine = PlayedEngine(info=info)
    return SimpleNamespace(host=SimpleNamespace(name="h1"), engine=engine, transport=LocalTransport("h1"))


def test_an_engine_without_room_is_an_error_that_says_how_much(tmp_path: Path) -> None:
    check_room(job({"DockerRootDir": str(tmp_path)}), "app:1", 1000)
    with pytest.raises(HostError) as caught:
        check_room(job({"DockerRootDir": str(tmp_path)}), "app:1", 10**18)
    assert (caught.value.code, caught.value.host) == ("disk-full", "h1")
    assert f"needs 2000000000.0 GB in {tmp_path} while it loads it, and " in caught.value.message
    assert "docker system prune" in str(caught.value.hint)
    with pytest.raises(HostError) as caught:
        check_room(job({"DockerRootDir": str(tmp_path), "BuildahVersion": "1.28.2"}), "app:1", 10**18)
    assert "podman system prune" in str(caught.value.hint)


def test_the_place_of_containerds_layers_counts(tmp_path: Path) -> None:
    (tmp_path / "containerd" / "daemon").mkdir(parents=True)
    info = {"DockerRootDir": str(tmp_path), "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    with pytest.raises(HostError, match="containerd/daemon"):
        check_room(job(info), "app:1", 10**18)


def test_an_engine_whose_place_the_host_does_not_know_is_asked_nothing(tmp_path: Path) -> None:
    check_room(job({"DockerRootDir": str(tmp_path / "elsewhere")}), "app:1", 10**18)
    check_room(job({}), "app:1", 10**18)
