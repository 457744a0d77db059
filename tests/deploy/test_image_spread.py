"""Which hosts hand an image on, and from whom it comes: transfers that a test plays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import image_spread
from jobctl.jobspec.deploy.host.image_copy import HERE
from jobctl.jobspec.deploy.host.image_spread import ImageSpread
from jobctl.jobspec.deploy.transport.local import LocalTransport

LAYERS = ("sha256:aa", "sha256:bb")


class Cluster:
    """Engines by name, with the layers that they have of the image; transfers are as `plays` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, having: Mapping[str, Sequence[str] | None]) -> None:
        self.having = dict(having)
        self.made: list[tuple[str, list[str]]] = []
        self.noted: list[str] = []
        self.told: list[str] = []
        self.fails: dict[tuple[str, str], str] = {}  # why, by source and host
        self.unable: set[str] = set()
        self.silent: set[str] = set()
        self.arrives: Sequence[str] = LAYERS
        self.jobs = {name: self._job(name) for name in having if name != HERE}
        for name, value in {
            "HandingOn": self._transfer,
            "layers_of": lambda engine, image: self.having[engine.name],
            "layers_there": lambda engine: [],
            "can_be_used": lambda job, image: True,
            "name_to_save": lambda engine, image: image,
        }.items():
            monkeypatch.setattr(image_spread, name, value)

    def _job(self, name: str) -> Any:
        transport = LocalTransport(name) if name == "localhost" else None
        host, engine = SimpleNamespace(name=name), Engine(self, name)
        return SimpleNamespace(host=host, engine=engine, transport=transport, tell=self.told.append)

    def _transfer(self, image: str, source: Any, jobs: Mapping[str, Any]) -> Any:
        def run() -> dict[str, str]:
            self.made.append((source.name, list(jobs)))
            lost = {host: self.fails[source.name, host] for host in jobs if (source.name, host) in self.fails}
            self.having |= {host: self.arrives for host in jobs if host not in lost}
            return lost

        return SimpleNamespace(run=run, unable=self.unable, silent=self.silent)

    def have(self, image: str) -> list[str]:
        return [name for name, layers in self.having.items() if layers is not None]

    def engine_of(self, name: str) -> Any:
        return Engine(self, name)

    def received(self, image: str, job: Any) -> None:
        self.noted.append(job.host.name)

    def bring(self) -> list[tuple[str, list[str]]]:
        sources: Any = self
        self.spread = ImageSpread(self.jobs.values(), sources)
        self.spread.bring("app:1", list(self.jobs))
        return self.made


class Engine:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name, self.command = cluster, name, ("docker",)

    @contextlib.contextmanager
    def asked(self) -> Iterator[Any]:
        yield SimpleNamespace(remove_image=lambda image, force: self.cluster.having.update({self.name: None}))


def test_it_comes_from_a_host_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": LAYERS, "h3": None, HERE: LAYERS})
    assert cluster.bring() == [("h2", ["h1", "h3"])]
    assert sorted(cluster.noted) == ["h1", "h3"]


@pytest.mark.parametrize(
    "having",
    [
        {"h1": LAYERS, "h2": LAYERS, HERE: LAYERS},
        {"h1": None, "h2": None, HERE: None},
        {"h2": None, HERE: LAYERS},  # one host gains nothing
        {"h2": None, "localhost": LAYERS},
    ],
)
def test_nothing_is_started_where_nobody_can_hand_it_on(
    monkeypatch: pytest.MonkeyPatch, having: dict[str, Sequence[str] | None]
) -> None:
    assert Cluster(monkeypatch, having).bring() == []


def test_this_machine_gives_it_to_several(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, "localhost": None, HERE: LAYERS})
    assert cluster.bring() == [(HERE, ["h1", "h2"])]


def test_what_one_source_cannot_give_comes_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, "h3": None, HERE: LAYERS})
    cluster.fails = {(HERE, "h2"): "it has said nothing", (HERE, "h3"): "python3: not found"}
    cluster.unable = {"h3"}
    assert cluster.bring() == [(HERE, ["h1", "h2", "h3"]), ("h1", ["h2"])]
    assert "h3 cannot take app:1 from other hosts: python3: not found" in cluster.told


def test_an_image_that_arrived_incomplete_loses_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be taken for the image."""
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, HERE: LAYERS})
    cluster.arrives = LAYERS[:1]
    cluster.bring()
    assert (cluster.having["h1"], cluster.noted) == (None, [])


def test_a_host_that_has_stopped_to_answer_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, HERE: LAYERS})
    cluster.fails, cluster.silent = {(HERE, "h2"): "it has said nothing"}, {"h2"}
    assert cluster.bring() == [(HERE, ["h1", "h2"])]
    assert {host: error.code for host, error in cluster.spread.gone.items()} == {"h2": "silent"}
