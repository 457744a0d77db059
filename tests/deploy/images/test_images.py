"""Images: how far a pull is, and copies from engine to engine."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.host.scripts.saved_image import without_layers
from jobctl.jobspec.deploy.images import copy as image_copy
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.images.copy import ImageSources, shared_layers
from jobctl.jobspec.deploy.images.images import PullProgress
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.engine_kind import EngineKind, engine_kind, processor_name, runs
from jobctl.jobspec.deploy.model.errors import HostError


def test_layers_add_up() -> None:
    progress = PullProgress()
    said = [
        (progress.add(line), str(progress))
        for line in (
            {"status": "Pulling from library/torch", "id": "latest"},
            {"status": "Pulling fs layer", "id": "a", "progressDetail": {}},
            {"status": "Downloading", "id": "a", "progressDetail": {"current": 1_000_000, "total": 8_000_000}},
            {"status": "Downloading", "id": "b", "progressDetail": {"current": 2_000_000, "total": 2_000_000}},
            {"status": "Download complete", "id": "a", "progressDetail": {}},
            {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 9}},
            {"status": "Already exists", "id": "c", "progressDetail": {}},
        )
    ]
    assert said == [
        (False, "0 of 0 MB"),
        (False, "0 of 0 MB"),
        (True, "1 of 8 MB"),
        (True, "3 of 10 MB"),
        (True, "10 of 10 MB"),
        (False, "10 of 10 MB"),
        (False, "10 of 10 MB"),
    ]


def saved(**members: bytes) -> bytes:
    """Return the tar of an image as engines save it: blobs, and what names them."""
    with io.BytesIO() as made:
        with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, content in members.items():
                entry = tarfile.TarInfo(name.replace("__", "/"))
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return made.getvalue()


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 511, 512, 10_000, 10_000_000])
def test_layers_that_the_other_engine_has_are_left_out(size: int) -> None:
    image = saved(blobs__sha256__aa=b"a" * 3_000_000, blobs__sha256__bb=b"b" * 700, manifest__json=b"[]")
    sent = b"".join(without_layers(pieces(image, max(size, len(image) // 5000)), frozenset({"sha256:aa"})))
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert found == {"blobs/sha256/bb": b"b" * 700, "manifest/json": b"[]"}


def test_what_an_engine_saves_goes_on_as_it_is() -> None:
    image = saved(blobs__sha256__aa=b"a" * 1_000, **{"a-long-name" * 20: b"long"})
    sent = b"".join(without_layers([image], frozenset()))
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        assert archive.getnames() == ["blobs/sha256/aa", "a-long-name" * 20]


@pytest.mark.parametrize(
    ("there", "shared"),
    [
        ([], ""),
        (["abc"], "abc"),
        (["abx", "ay"], "ab"),
        (["bc"], ""),  # a layer is the same only above the same
        (["abcd"], "abc"),
    ],
)
def test_only_layers_at_the_bottom_count(there: list[str], shared: str) -> None:
    assert shared_layers("abc", there) == frozenset(shared)


def test_a_layer_that_comes_twice_is_sent() -> None:
    """An empty layer, for example, of which engines save one blob."""
    assert shared_layers("aba", ["ab"]) == frozenset("b")


def test_a_truncated_image_is_an_error() -> None:
    image = saved(blobs__sha256__aa=b"a" * 30_000)
    with pytest.raises(tarfile.TarError):
        list(without_layers([image[:20_000]], frozenset()))


@pytest.mark.parametrize("left_out", [frozenset[str](), frozenset({"sha256:aa"})])
def test_an_archive_that_lacks_a_layer_is_an_error(left_out: frozenset[str]) -> None:
    """As containerd's store saves it, if the layer was unpacked before its blob was pulled (moby#49473)."""
    members = {"blobs__sha256__aa": b"a" * 1_000, "blobs__sha256__bb": b"b"}
    listing = json.dumps([{"Layers": ["blobs/sha256/aa", "blobs/sha256/bb"]}]).encode()
    complete = saved(**members, **{"manifest.json": listing})
    assert b"".join(without_layers([complete], left_out)).endswith(bytes(1024))
    image = saved(blobs__sha256__aa=members["blobs__sha256__aa"], **{"manifest.json": listing})
    with pytest.raises(tarfile.TarError, match=r"lost a part of it .blobs/sha256/bb"):
        list(without_layers([image], left_out))


@pytest.mark.parametrize("listing", [b"", b"{", b"null", b"{}", b"[1]", b'[{"Layers": null}]', b'[{"Layers": 5}]'])
def test_a_list_of_layers_that_no_engine_writes_is_passed_on(listing: bytes) -> None:
    image = saved(**{"manifest.json": listing})
    with tarfile.open(fileobj=io.BytesIO(b"".join(without_layers([image], frozenset())))) as archive:
        assert archive.getnames() == ["manifest.json"]


class Copies:
    """Engines by name, and copies between them that a test plays: `broken` cannot save."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, having: dict[str, bool | str], broken: str = "") -> None:
        self.made: list[tuple[str, str]] = []
        self.asked: Counter[str] = Counter()

        def made_for(engine: str, image: str) -> str | None:
            self.asked[engine] += 1
            there = having.get(engine)
            return there if isinstance(there, str) else "" if there else None

        def copy(name: str, source: str, host_job: Any, image: str) -> None:
            if name == broken:
                raise image_copy.NotSaved(image)
            self.made.append((name, host_job.host.name))

        monkeypatch.setattr(image_copy, "made_for", made_for)
        monkeypatch.setattr(image_copy, "_copy", copy)
        monkeypatch.setattr(image_copy, "Engine", lambda transport: transport.host)
        names = [name for name in having if name != image_copy.HERE]
        self.jobs: dict[str, Any] = {
            name: SimpleNamespace(host=SimpleNamespace(name=name), engine=Named(name)) for name in names
        }
        self.sources = ImageSources(self.jobs.values())


class Named(str):
    transport = None

    def kind(self) -> EngineKind:
        return EngineKind("docker", "26.1.5", "layers", processor="arm64" if self.startswith("arm") else "amd64")


def test_a_host_gets_the_image_from_another_host_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch, {"h1": False, "h2": True, "h3": False, image_copy.HERE: True})
    assert copies.sources.copy(copies.jobs["h1"], "app:1")
    assert copies.sources.copy(copies.jobs["h3"], "app:1")
    assert copies.made == [("h2", "h1"), ("h2", "h3")]
    assert set(copies.asked.values()) == {1}


def test_what_cannot_be_saved_comes_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch, {"h1": False, "h2": True, image_copy.HERE: True}, broken="h2")
    assert copies.sources.copy(copies.jobs["h1"], "app:1")
    assert copies.made == [(image_copy.HERE, "h1")]


def test_an_image_for_another_processor_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    having: dict[str, bool | str] = {"h1": False, "arm1": False, "h2": "arm64", "h3": "amd64", image_copy.HERE: "arm64"}
    copies = Copies(monkeypatch, having)
    assert copies.sources.copy(copies.jobs["h1"], "app:1")
    assert copies.sources.copy(copies.jobs["arm1"], "app:1")
    assert copies.made == [("h3", "h1"), ("h2", "arm1")]
    having |= {"h1": "amd64", "arm1": "amd64"}  # what the registry gave: it has none for arm64
    for name in ("h1", "arm1"):
        copies.sources.received("app:1", copies.jobs[name])
    assert copies.sources.have("app:1", "amd64") == ["h3", "h1", "arm1"]
    assert copies.sources.have("app:1", "arm64") == ["h2", image_copy.HERE]
    copies = Copies(monkeypatch, {"h1": False, image_copy.HERE: "arm64"})
    assert not copies.sources.copy(copies.jobs["h1"], "app:1")
    copies = Copies(monkeypatch, {"h1": False, image_copy.HERE: ""})  # Podman, or an old engine, may not say
    assert copies.sources.copy(copies.jobs["h1"], "app:1")


def test_nobody_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch, {"h1": False, "h2": False, image_copy.HERE: False})
    assert not copies.sources.copy(copies.jobs["h1"], "app:1")
    copies = Copies(monkeypatch, {"h1": False, "h2": True}, broken="h2")
    assert not copies.sources.copy(copies.jobs["h1"], "app:1")
    assert not copies.sources.copy(copies.jobs["h1"], "app@sha256:0123")  # what is loaded has no digest


@pytest.mark.parametrize(
    ("there", "done"),
    [
        ({"localhost/lab/app:1": ("sha256:aa",)}, ["tag localhost/lab/app:1 lab/app 1", "remove localhost/lab/app:1"]),
        ({"localhost/lab/app:1": ("sha256:bb",)}, []),  # another image of that name, which is none of ours
        ({"localhost/lab/app:1": ("sha256:aa",), "lab/app:1": ("sha256:aa",)}, []),  # Podman, or not just loaded
        ({}, []),
    ],
)
def test_what_podman_has_saved_gets_its_name_back(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, tuple[str, ...]], done: list[str]
) -> None:
    asked = list[str]()
    client = SimpleNamespace(
        tag=lambda *names: asked.append(" ".join(("tag", *names))),
        remove_image=lambda name: asked.append(f"remove {name}"),
    )
    engine: Any = SimpleNamespace(asked=lambda: contextlib.nullcontext(client))
    monkeypatch.setattr(image_copy, "layers_of", lambda engine, image: there.get(image))
    image_copy.give_name(engine, "lab/app:1", ["sha256:aa"])
    assert asked == done


class Ways:
    """A host that lacks an image, and ways to it that a test plays: those in `works` bring it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, works: set[str], current: set[str] | None = None) -> None:
        self.tried: list[str] = []
        self.told: list[str] = []
        self.works, self.found, self.current = works, cast("Image | None", None), current or set()
        self.job: Any = SimpleNamespace(host=SimpleNamespace(name="h1"), tell=self.told.append, own=Path("/work"))
        self.job.remove, self.job.engine, self.unfit = lambda paths: None, None, False
        monkeypatch.setattr(images, "look", lambda job, image, *, fit=False: None if fit and self.unfit else self.found)
        monkeypatch.setattr(images, "misfit", lambda engine, image: "is for arm64, and this host has amd64")
        monkeypatch.setattr(images, "pull", lambda job, image: self._way("pull"))

    def copy(self, job: Any, image: str) -> bool:
        return self._way("copy")

    def is_current(self, image: str, host: str | None = None) -> bool:
        return bool(self.current) if host is None else host in self.current

    def _way(self, name: str) -> bool:
        self.tried.append(name)
        if name not in self.works:
            raise HostError("h1", f"no-{name}", f"{name} fails")
        self.found, self.unfit = FOUND, False
        return True

    def ensure(self, pull: str, found: Image | None = None) -> list[str]:
        container: Any = SimpleNamespace(image="app:1", pull=pull)
        assert images.ensure(self.job, container, cast(ImageSources, self), found) == FOUND
        return self.tried


FOUND = Image("app:1", ("sha256:1",), ())


def test_a_host_that_cannot_take_it_from_others_pulls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(monkeypatch, {"pull"})
    assert ways.ensure("missing") == ["copy", "pull"]
    assert ways.told == ["h1: copy fails: jobctl tries another way"]
    with pytest.raises(HostError, match="copy fails"):
        Ways(monkeypatch, {"pull"}).ensure("never")
    with pytest.raises(HostError, match="copy fails"):
        Ways(monkeypatch, set()).ensure("missing")


def test_an_image_for_another_processor_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(monkeypatch, {"pull"})
    ways.found, ways.unfit = Image("app:1", ("sha256:other",), ()), True
    monkeypatch.setattr(ways, "copy", lambda job, image: False)  # nobody has it for this one
    assert ways.ensure("missing") == ["pull"]


def test_where_there_is_no_other_an_image_for_another_processor_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host may emulate it. What was asked for by `never` or `always` is used in any case."""
    for pull, tried in (("missing", ["copy", "pull"]), ("never", [])):
        ways = Ways(monkeypatch, set())
        ways.found, ways.unfit = FOUND, True
        assert ways.ensure(pull) == tried
        said = ["h1: its image `app:1` is for arm64, and this host has amd64"] if tried else []
        assert [line for line in ways.told if "tries another way" not in line] == said


def test_what_has_just_been_pulled_comes_from_the_registry_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ways(monkeypatch, {"pull", "copy"}, {"h2"}).ensure("missing") == ["pull"]
    assert Ways(monkeypatch, {"copy"}, {"h2"}).ensure("missing") == ["pull", "copy"]


def test_always_asks_the_registry_unless_that_was_done_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ways(monkeypatch, {"pull"}, {"h2"}).ensure("always") == ["pull"]
    ways = Ways(monkeypatch, {"pull"}, {"h1"})
    ways.found = FOUND
    assert ways.ensure("always") == []


def test_an_image_that_was_seen_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(monkeypatch, {"pull", "copy"})
    assert ways.ensure("missing", FOUND) == []
    assert ways.ensure("always", Image("app:1", ("sha256:old",), ())) == ["pull"]


@pytest.mark.parametrize(
    ("host", "image", "does"),
    [
        ("x86_64", "amd64", True),
        ("amd64", "amd64", True),  # as Podman calls it
        ("x86_64", "arm64", False),
        ("aarch64", "amd64", False),
        ("aarch64", "arm64", True),
        ("aarch64", "arm", True),  # of an engine that is a 32-bit program
        ("armv7l", "arm64", False),
        ("x86_64", "386", True),
        ("i686", "amd64", False),
        ("x86_64", "x86_64", True),  # of a tool that took the kernel's name
        ("x86_64", "", True),
        ("", "arm64", True),
        ("mips64", "mips64le", True),  # nobody knows
    ],
)
def test_which_images_a_processor_runs(host: str, image: str, does: bool) -> None:
    has = engine_kind({"Architecture": host}).processor
    assert runs(has, processor_name({"Architecture": image} if image else {})) == does
