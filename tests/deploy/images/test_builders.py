"""Who builds an image: the host that can, and nobody where it is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.images.copy import HERE
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.targets import building
from tests.deploy.images.built import build_of, folder_to_build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_to_build(tmp_path)


# Who builds.


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of engines that were asked to build."""
    asked: list[str] = []
    monkeypatch.setattr(building, "build_image", lambda engine, *rest: asked.append(engine.name))
    monkeypatch.setattr(building, "Engine", lambda transport: EngineWithImage(transport.host, "x86_64"))
    return asked


class EngineWithImage:
    """An engine that has an image for a processor, or says what its own is."""

    def __init__(self, name: str, processor: str, image_for: str = "amd64") -> None:
        self.name, self.transport = name, SimpleNamespace(host=name)
        self.inspect_image = lambda image: {"Architecture": image_for}
        self.info = lambda: {"Architecture": processor}
        self.answer = lambda value, kind: value
        self.removed: list[str] = []
        self.remove_image = lambda image, noprune: self.removed.append(image)
        self.tagged: list[tuple[str, str]] = []
        self.tag = lambda image, repository, tag: self.tagged.append((image, f"{repository}:{tag}"))

    @contextmanager
    def asked(self) -> Iterator[Any]:
        yield self


def fleet_of(
    monkeypatch: pytest.MonkeyPatch, having: set[str], *, local: bool = False, processor: str = "x86_64"
) -> Any:
    here = building.LocalTransport("localhost")
    jobs = {
        name: SimpleNamespace(engine=EngineWithImage(name, processor), transport=here if name == "localhost" else None)
        for name in ("h1", "h2", *(["localhost"] if local else []))
    }
    sources = SimpleNamespace(have=lambda image: sorted(having), engine_of=lambda name: jobs[name].engine)
    monkeypatch.setattr(building, "ImageSources", lambda jobs: sources)
    return SimpleNamespace(host_jobs=jobs, down={})


def plan_with(folder: Path, **changes: Any) -> Any:
    nodes = tuple(SimpleNamespace(host=SimpleNamespace(name=name)) for name in ("h1", "h2"))
    return SimpleNamespace(build=build_of(folder, **changes), job="demo", nodes=nodes)


@pytest.mark.parametrize(
    ("on", "local", "who"),
    [
        (None, False, HERE),
        (None, True, "localhost"),  # where the hosts file may name another engine of this machine
        ("localhost", False, HERE),
        ("h2", True, "h2"),
    ],
)
def test_who_builds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str], on: str | None, local: bool, who: str
) -> None:
    fleet = fleet_of(monkeypatch, set(), local=local)
    building.build(fleet, plan_with(folder, on=on), lambda line: None)
    assert built == [who]


def test_what_somebody_has_is_not_built(folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str]) -> None:
    building.build(fleet_of(monkeypatch, {"h2"}), plan_with(folder), lambda line: None)
    assert built == []


@pytest.mark.parametrize(("image", "name"), [("reg:5/x/t:1.0-rc-aa", "reg:5/x/t:1.0-rc"), ("t:aa", "t:latest")])
@pytest.mark.parametrize("having", [set(), {"h1", "h2"}])
def test_the_builder_has_the_image_by_the_name_of_the_spec_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str], image: str, name: str, having: set[str]
) -> None:
    """Even if nothing was built: it may be the name of a later version."""
    fleet = fleet_of(monkeypatch, having)
    building.build(fleet, plan_with(folder, on="h2", image=image), lambda line: None)
    assert [job.engine.tagged for job in fleet.host_jobs.values()] == [[], [(image, name)]]


def test_an_image_is_not_called_as_what_it_is_made_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str]
) -> None:
    fleet = fleet_of(monkeypatch, set())
    building.build(fleet, plan_with(folder, on="h2", image="base:1-aa"), lambda line: None)
    assert (built, fleet.host_jobs["h2"].engine.tagged) == (["h2"], [])


def test_a_builder_is_not_needed_where_the_image_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str]
) -> None:
    fleet = fleet_of(monkeypatch, {"h1"})
    fleet.down = {"h2": HostError("h2", "unreachable", "it does not answer")}
    building.build(fleet, plan_with(folder, on="h2"), lambda line: None)
    assert built == []


@pytest.mark.parametrize("processor", ["aarch64", "arm64"])
def test_an_image_for_another_processor(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str], processor: str
) -> None:
    fleet = fleet_of(monkeypatch, set(), processor=processor)
    with pytest.raises(HostError, match="is for amd64, and this host has arm64"):
        building.build(fleet, plan_with(folder, on="h2"), lambda line: None)
    assert fleet.host_jobs["h2"].engine.removed == ["demo:1"]


def test_an_image_that_was_built_for_other_hosts_is_built_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str]
) -> None:
    """It has the same name, and what begins with it says `exec format error`."""
    fleet = fleet_of(monkeypatch, {"localhost"}, local=True, processor="aarch64")
    fleet.host_jobs["h2"].engine.inspect_image = lambda image: {"Architecture": "arm64"}
    building.build(fleet, plan_with(folder, on="h2"), lambda line: None)
    assert built == ["h2"]
    assert [job.engine.removed for job in fleet.host_jobs.values()] == [[], [], ["demo:1"]]


@pytest.mark.parametrize(("code", "shown"), [("engine-refused", "build-processor"), ("docker-down", "docker-down")])
def test_an_image_for_another_processor_that_containers_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str], code: str, shown: str
) -> None:
    fleet = fleet_of(monkeypatch, {"localhost"}, local=True, processor="aarch64")

    def refuse(image: str, noprune: bool) -> None:
        raise HostError("localhost", code, "its engine refuses: container 1 uses it")

    fleet.host_jobs["localhost"].engine.remove_image = refuse
    with pytest.raises(HostError, match="container 1 uses it") as failed:
        building.build(fleet, plan_with(folder), lambda line: None)
    assert (failed.value.code, "`jobctl down demo`" in str(failed.value.hint)) == (shown, shown == "build-processor")
    assert built == []


def test_an_image_that_only_some_hosts_can_use_keeps_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str]
) -> None:
    fleet = fleet_of(monkeypatch, {"h1"})
    fleet.host_jobs["h2"].engine.info = lambda: {"Architecture": "aarch64"}
    with pytest.raises(HostError, match="is for amd64, and this host has arm64"):
        building.build(fleet, plan_with(folder), lambda line: None)
    assert (built, fleet.host_jobs["h1"].engine.removed) == ([], [])


def test_a_builder_that_does_not_answer(folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str]) -> None:
    fleet = fleet_of(monkeypatch, set())
    fleet.down = {"h2": HostError("h2", "unreachable", "it does not answer")}
    with pytest.raises(HostError, match="does not answer"):
        building.build(fleet, plan_with(folder, on="h2"), lambda line: None)
    with pytest.raises(HostError, match="not among the hosts"):
        building.build(fleet, plan_with(folder, on="h9"), lambda line: None)
    assert built == []
