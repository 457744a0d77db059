"""Which hosts hand an image on, and from whom it comes: transfers that a test plays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.handing_on import HandingOn
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.images import spread as image_spread
from jobctl.jobspec.deploy.images.copy import HERE
from jobctl.jobspec.deploy.images.spread import ImageSpread, Pull, sent_at_once
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.local import LocalTransport

LAYERS = ("sha256:aa", "sha256:bb")
OLD, NEW = Image("app:1", ("sha256:1",), ()), Image("app:1", ("sha256:2",), ("app@sha256:new",))


class Cluster:
    """Engines by name, with the layers that they have of the image; transfers are as `plays` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, having: Mapping[str, Sequence[str] | None]) -> None:
        self.having = dict(having)
        self.made: list[tuple[str, list[str]]] = []
        self.left_out: list[set[str]] = []  # of each transfer
        self.below: dict[str, Sequence[str]] = {}  # layers of other images that hosts have
        self.saves_parts = True
        self.noted: list[str] = []
        self.told: list[str] = []
        self.fails: dict[tuple[str, str], str] = {}  # why, by source and host
        self.unable: set[str] = set()
        self.silent: set[str] = set()
        self.arrives: Sequence[str] = LAYERS
        self.full: set[str] = set()
        self.pulled: list[str] = []
        self.refuses: dict[str, str] = {}  # with which code the registry refuses a host
        self.ids: dict[str, Image] = {}
        self.current: set[str] = set()
        self.made_for: dict[str, str] = {}  # where it is not for amd64
        self.gives = ""  # the only processor for which the registry has it
        self.jobs = {name: self._job(name) for name in having if name != HERE}
        for name, value in {
            "HandingOn": self._transfer,
            "layers_of": lambda engine, image: self.having[engine.name],
            "layers_there": lambda engine: [self.below.get(engine.name, ())],
            "can_be_used": lambda job, image: True,
            "give_name": lambda engine, image, layers: self.having[engine.name],
            "bytes_missing": lambda engine, image, layers, shared: 50_000_000 if shared else 5_000_000_000,
            "check_room": self._room,
            "name_to_save": lambda engine, image: image,
        }.items():
            monkeypatch.setattr(image_spread, name, value)
        monkeypatch.setattr(images, "pull", self._pull)
        monkeypatch.setattr(images, "look", self._look)
        monkeypatch.setattr(images, "digest_in_registry", self._ask)

    def _job(self, name: str) -> Any:
        transport = LocalTransport(name) if name == "localhost" else None
        host, engine = SimpleNamespace(name=name), Engine(self, name)
        return SimpleNamespace(host=host, engine=engine, transport=transport, tell=self.told.append)

    def _transfer(self, image: str, source: Any, jobs: Mapping[str, Any]) -> Any:
        def run() -> dict[str, str]:
            self.made.append((source.name, list(jobs)))
            self.left_out.append(set(source.without))
            made.lost = {host: self.fails[source.name, host] for host in jobs if (source.name, host) in self.fails}
            self.having |= {host: self.arrives for host in jobs if host not in made.lost}
            return made.lost

        made: Any = HandingOn(image, source, jobs)
        made.run, made.unable, made.silent = run, self.unable, self.silent
        return made

    def _look(self, job: Any, image: str, *, fit: bool = False) -> Image | None:
        if fit and self.processor(job.host.name) != self.made_for.get(job.host.name, "amd64"):
            return None
        return self.ids.get(job.host.name) or (OLD if self.having[job.host.name] is not None else None)

    def _room(self, job: Any, image: str, missing: int) -> None:
        if job.host.name in self.full:
            raise HostError(job.host.name, "disk-full", "no room")

    def _ask(self, job: Any, image: str) -> str:
        if job.host.name in self.refuses:
            raise HostError(job.host.name, self.refuses[job.host.name], "no")
        return "sha256:new"

    def _pull(self, job: Any, image: str) -> None:
        self._ask(job, image)
        self.pulled.append(job.host.name)
        self.having[job.host.name] = LAYERS
        self.made_for[job.host.name] = self.gives or self.processor(job.host.name)
        self.ids[job.host.name] = NEW

    def note_current(self, image: str, hosts: Iterable[str]) -> None:
        self.current.update(hosts)

    def is_current(self, image: str, host: str | None = None) -> bool:
        return bool(self.current) if host is None else host in self.current

    def have(self, image: str, processor: str = "") -> list[str]:
        there = [name for name, layers in self.having.items() if layers is not None]
        return [name for name in there if processor in ("", self.made_for.get(name, "amd64"))]

    def processor(self, name: str) -> str:
        return "arm64" if name.startswith("arm") else "amd64"

    def engine_of(self, name: str) -> Any:
        return Engine(self, name)

    def received(self, image: str, job: Any) -> None:
        self.noted.append(job.host.name)

    def bring(self, pull: Pull = "never", image: str = "app:1") -> list[tuple[str, list[str]]]:
        sources: Any = self
        self.spread = ImageSpread(self.jobs.values(), sources)
        self.spread.bring(image, list(self.jobs), pull)
        return self.made


class Engine:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name, self.command = cluster, name, ("docker",)

    def kind(self) -> Any:
        return SimpleNamespace(saves_parts=self.cluster.saves_parts, processor=self.cluster.processor(self.name))

    @contextlib.contextmanager
    def asked(self) -> Iterator[Any]:
        yield SimpleNamespace(remove_image=lambda image, force: self.cluster.having.update({self.name: None}))


def test_it_comes_from_a_host_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": LAYERS, "h3": None, HERE: LAYERS})
    assert cluster.bring() == [("h2", ["h1", "h3"])]
    assert sorted(cluster.noted) == ["h1", "h3"]


def test_it_comes_from_engines_that_have_it_for_the_hosts_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, "arm1": None, "arm2": None, "arm3": LAYERS, HERE: LAYERS})
    cluster.made_for = {"arm3": "arm64"}
    assert cluster.bring() == [(HERE, ["h1", "h2"]), ("arm3", ["arm1", "arm2"])]


@pytest.mark.parametrize("pull", ["missing", "always"])
def test_one_host_of_each_processor_pulls_it(monkeypatch: pytest.MonkeyPatch, pull: Pull) -> None:
    """An image of this name for another processor is none, and what a registry gives depends on who asks."""
    cluster = Cluster(monkeypatch, {"h1": LAYERS, "h2": None, "h3": None, "arm1": None, "arm2": None})
    cluster.made_for = {"h1": "arm64"}
    assert cluster.bring(pull) == [("h1", ["h2", "h3"]), ("arm1", ["arm2"])]
    assert cluster.pulled == ["h1", "arm1"]


@pytest.mark.parametrize("pull", ["missing", "always"])
def test_what_a_registry_has_for_another_processor_alone_is_not_handed_on(
    monkeypatch: pytest.MonkeyPatch, pull: Pull
) -> None:
    """Nor is an older image for that of the hosts, where the registry is to be asked for the newest: each asks by itself."""
    cluster = Cluster(monkeypatch, {"arm1": None, "arm2": None, "arm3": LAYERS if pull == "always" else None})
    cluster.gives, cluster.made_for = "amd64", {"arm3": "arm64"}
    assert (cluster.bring(pull), cluster.pulled, cluster.current) == ([], ["arm1"], {"arm1"})


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


def test_a_host_that_lacks_all_waits_for_those_that_lack_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each of these would get, and hand on, what it has already."""
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, "h3": None, HERE: LAYERS})
    cluster.below = {"h1": LAYERS[:1], "h3": LAYERS[:1]}
    assert cluster.bring() == [(HERE, ["h1", "h3"]), ("h1", ["h2"])]
    assert cluster.left_out == [{"sha256:aa"}, set()]


def test_an_image_that_is_saved_whole_goes_to_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, "h3": None, HERE: LAYERS})
    cluster.below, cluster.saves_parts = {"h1": LAYERS[:1], "h3": LAYERS[:1]}, False
    assert cluster.bring() == [(HERE, ["h1", "h2", "h3"])]
    assert cluster.left_out == [set()]


def test_hosts_that_lack_little_more_do_not_wait() -> None:
    assert sent_at_once({"h1": 50, "h2": 100_000_050, "h3": 100_000_101}) == ["h1", "h2"]
    assert sent_at_once({"h1": 10**9, "h2": 2 * 10**9}) == ["h1", "h2"]


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


def test_one_host_pulls_what_only_the_registry_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, "h3": None, HERE: None})
    assert cluster.bring("missing") == [("h1", ["h2", "h3"])]
    assert (cluster.pulled, cluster.current) == (["h1"], {"h1", "h2", "h3"})


def test_another_host_pulls_where_the_first_does_not_reach_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, "h3": None, HERE: None})
    cluster.refuses = {"h1": "registry-unreachable"}
    assert cluster.bring("missing") == [("h2", ["h1", "h3"])]


def test_a_registry_that_refuses_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each host asks it later, and says what is wrong."""
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, HERE: None})
    cluster.refuses = {"h1": "image-unknown"}
    assert (cluster.bring("missing"), cluster.pulled) == ([], [])


@pytest.mark.parametrize(
    ("pull", "image", "having"),
    [
        ("never", "app:1", {"h1": None, "h2": None, HERE: None}),
        ("missing", "app:1", {"h1": None, "localhost": None, HERE: None}),
        ("missing", "app@sha256:new", {"h1": None, "h2": None, HERE: None}),
        ("always", "app@sha256:new", {"h1": None, "h2": None, HERE: None}),
    ],
)
def test_each_host_pulls_by_itself_what_cannot_be_handed_on(
    monkeypatch: pytest.MonkeyPatch, pull: Pull, image: str, having: dict[str, Sequence[str] | None]
) -> None:
    cluster = Cluster(monkeypatch, having)
    assert (cluster.bring(pull, image), cluster.pulled) == ([], [])


def test_always_brings_what_the_registry_has_to_those_that_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, dict.fromkeys(["h1", "h2", "h3", "h4", HERE], LAYERS))
    handed_on = Image("app:1", NEW.ids, ())
    cluster.ids = {"h1": OLD, "h2": NEW, "h3": handed_on}
    assert cluster.bring("always") == [("h2", ["h1", "h4"])]
    assert (cluster.pulled, cluster.current) == ([], {"h1", "h2", "h3", "h4"})
    assert cluster.spread.found == {
        ("h2", "app:1"): NEW,
        ("h3", "app:1"): handed_on,
    }  # which need not be looked at again


def test_always_has_one_host_pull_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, dict.fromkeys(["h1", "h2", HERE], LAYERS))
    cluster.ids = {"h1": OLD, "h2": OLD}
    assert cluster.bring("always") == [("h1", ["h2"])]
    assert (cluster.pulled, cluster.spread.found) == (["h1"], {("h1", "app:1"): NEW})


def test_nothing_is_sent_to_a_host_that_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"h1": None, "h2": None, "h3": None, HERE: LAYERS})
    cluster.full = {"h2"}
    assert cluster.bring() == [(HERE, ["h1", "h3"])]
    assert {host: error.code for host, error in cluster.spread.gone.items()} == {"h2": "disk-full"}
