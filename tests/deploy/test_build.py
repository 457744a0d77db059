"""Images that are built: what the engine gets, what their names are, and who builds them."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import image_build
from jobctl.jobspec.deploy.host.image_build import build_image, packed, registries
from jobctl.jobspec.deploy.host.image_copy import HERE
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.store.build_context import context_of
from jobctl.jobspec.deploy.store.dockerfile import needs_buildkit
from jobctl.jobspec.deploy.targets import building
from jobctl.jobspec.plan.sent import Build
from jobctl.jobspec.planner.code import tagged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to build from, with a bit of everything."""
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "Dockerfile").write_text("FROM base:1\nCOPY . /app\n")
    (root / "src" / "deep" / "train.py").write_text("print(1)\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "latest").symlink_to("src/deep")
    (root / "job.yaml").write_text("name: demo\n")
    (root / ".env").write_text("TOKEN=1\n")
    (root / ".git").mkdir()
    (root / ".git" / "index").write_text("1")
    return root


def build_of(root: Path, **changes: Any) -> Build:
    plain = Build("demo:1", str(root), str(root / "Dockerfile"), withheld=((str(root / "job.yaml"), "the spec"),))
    return replace(plain, **changes)


def version(root: Path, **changes: Any) -> str:
    build = build_of(root, **changes)
    return context_of(build, "demo").version(build)


def members(root: Path, **changes: Any) -> dict[str, tuple[int, bytes | str | None]]:
    """Return what the engine gets: modes, and contents or where links lead."""
    content = b"".join(packed(context_of(build_of(root, **changes), "demo")))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            member.name: (member.mode, read.read() if (read := archive.extractfile(member)) else None)
            if not member.issym()
            else (member.mode, member.linkname)
            for member in archive
        }


def test_what_the_engine_gets(folder: Path) -> None:
    assert members(folder) == {
        "src": (0o755, None),
        "src/deep": (0o755, None),
        "Dockerfile": (0o644, b"FROM base:1\nCOPY . /app\n"),
        "latest": (0o777, "src/deep"),
        "run.sh": (0o755, b"#!/bin/sh\n"),
        "src/deep/train.py": (0o644, b"print(1)\n"),
    }


def test_dockerignore_decides(folder: Path) -> None:
    (folder / ".dockerignore").write_text("# all but\n*\n!src\n!.git\n!.env\n")
    assert set(members(folder)) == {
        *(".git", ".git/index", ".env", "src", "src/deep", "src/deep/train.py"),
        *(".dockerignore", ".dockerfile.863e293b8bb7"),
    }


def test_a_private_file_is_taken_back_by_its_own_line_only(folder: Path) -> None:
    (folder / "src" / ".env").write_text("TOKEN=2\n")
    (folder / ".dockerignore").write_text("!.env\n")
    assert {".env", "src/.env"} & set(members(folder)) == {".env"}
    left_out = context_of(build_of(folder), "demo").left_out
    assert [(one.name, one.why) for one in left_out] == [("job.yaml", "the spec"), ("src/.env", "an env file")]


def test_a_dockerfile_elsewhere_is_not_copied(folder: Path) -> None:
    (folder.parent / "Dockerfile").write_text("FROM base:2\nCOPY . /\n")
    (folder / ".dockerignore").write_text("run.sh\n")
    context = context_of(build_of(folder, dockerfile=str(folder.parent / "Dockerfile")), "demo")
    found = members(folder, dockerfile=str(folder.parent / "Dockerfile"))
    assert found[context.name] == (0o644, b"FROM base:2\nCOPY . /\n")
    assert found[".dockerignore"] == (0o644, f"run.sh\n{context.name}\n".encode())


def test_a_dockerfile_has_an_ignore_file_of_its_own(folder: Path) -> None:
    (folder / ".dockerignore").write_text("src\n")
    (folder / "Dockerfile.dockerignore").write_text("run.sh\n")
    assert {"src", "run.sh"} & set(members(folder)) == {"src"}


CHANGES: dict[str, tuple[bool, Callable[[Path], object]]] = {
    "content": (True, lambda root: (root / "src" / "deep" / "train.py").write_text("print(2)\n")),
    "name": (True, lambda root: (root / "run.sh").rename(root / "go.sh")),
    "executable": (True, lambda root: (root / "run.sh").chmod(0o644)),
    "link": (True, lambda root: ((root / "latest").unlink(), (root / "latest").symlink_to("src"))),
    "Dockerfile": (True, lambda root: (root / "Dockerfile").write_text("FROM base:2\nCOPY . /app\n")),
    "time": (False, lambda root: os.utime(root / "run.sh", (1, 1))),
    "umask": (False, lambda root: (root / "run.sh").chmod(0o775)),
    "spec": (False, lambda root: (root / "job.yaml").write_text("name: demo\nnodes: 2\n")),
    "private": (False, lambda root: (root / ".env").write_text("TOKEN=2\n")),
    "git": (False, lambda root: (root / ".git" / "index").write_text("2")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_version_follows_the_content(folder: Path, what: str) -> None:
    before, (another, change) = version(folder), CHANGES[what]
    change(folder)
    assert (version(folder) != before) is another


def test_the_version_follows_what_the_spec_says(folder: Path) -> None:
    every = [{}, {"args": (("A", "1"),)}, {"args": (("A", "2"),)}, {"target": "x"}]
    assert len({version(folder, **changes) for changes in every}) == 4
    assert version(folder, on="gpu01") == version(folder)


def test_a_file_that_is_ignored_is_no_version(folder: Path) -> None:
    (folder / ".dockerignore").write_text("*.log\n.dockerignore\n")
    before = version(folder)
    (folder / "a.log").write_text("1")
    assert version(folder) == before


@pytest.mark.parametrize(
    ("copy", "another"),
    [
        ("COPY run.sh /app/", False),
        ('COPY --chown=1:1 ["run.sh", "src", "/app/"]', True),
        ("COPY s*/deep /app/", True),
        ("COPY latest/train.py /app/", True),  # a link is followed
        ("COPY --from=base /src /app/", False),
        ("ADD https://example.com/x /x", False),
        ("COPY $WHERE /app/", True),
        ("RUN --mount=target=/src make", True),
        ("RUN --mount=type=cache,target=/root/.cache pip install x", False),
        ("COPY <<EOF /a\nx\nEOF", True),
        ("COPY \\\n  # why\n  ./run.sh \\\n /app/", False),
        ("ONBUILD COPY . /app", True),
    ],
)
def test_a_file_that_is_not_copied_makes_no_version(folder: Path, copy: str, another: bool) -> None:
    (folder / "Dockerfile").write_text(f"FROM base:1\n{copy}\n")
    before = version(folder)
    (folder / "src" / "deep" / "train.py").write_text("print(2)\n")
    assert (version(folder) != before) is another
    assert ("src/deep/train.py" in members(folder)) is another


@pytest.mark.parametrize("missing", ["Dockerfile", ""])
def test_nothing_to_build_from(folder: Path, missing: str) -> None:
    build = build_of(folder, context=str(folder if missing else folder / "none"))
    (folder / "Dockerfile").unlink()
    with pytest.raises(DeployError, match="Dockerfile: No such file" if missing else "no directory"):
        context_of(build, "demo")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("train", "train:0123"),
        ("team/train:1.0", "team/train:1.0-0123"),
        ("localhost:5000/train", "localhost:5000/train:0123"),
        ("localhost:5000/train:1", "localhost:5000/train:1-0123"),
        ("train:" + "x" * 128, "train:" + "x" * 123 + "-0123"),
    ],
)
def test_the_tag_has_the_version(name: str, found: str) -> None:
    assert tagged(name, "0123") == found


def test_registries_of_a_dockerfile() -> None:
    text = (
        b"ARG WHERE=unused.example.com\nARG TAG='2'\nFROM --platform=linux/amd64 ${WHERE}/lab/torch:${TAG} AS base\n"
        b"from debian:12\nCOPY --from=base /a /b\nCOPY --from=tools.example.com:5000/uv:1 \\\n /uv /bin\n"
        b"FROM ${NONE:-quay.io}/x\nFROM scratch\n"
    )
    assert registries(text, [("WHERE", "registry.example.com")]) == {
        *("registry.example.com", "docker.io", "tools.example.com:5000", "quay.io")
    }


# The engine.


class EngineSpeaks:
    """An engine that says what a test wants when it is to build."""

    def __init__(self, lines: list[dict[str, Any]], meanwhile: Callable[[], object] = lambda: None) -> None:
        self.lines, self.meanwhile = lines, meanwhile
        self.transport, self.command = SimpleNamespace(host="h1"), ("docker",)
        self.removed: list[str] = []
        self.asked_for: dict[str, Any] = {}
        self._proxy_configs = SimpleNamespace(get_environment=lambda: {"http_proxy": "http://proxy"})

    @contextmanager
    def asked(self, refused: Callable[[str], HostError] | None = None) -> Iterator[Any]:
        yield self

    def _url(self, path: str) -> str:
        return path

    def _post(self, url: str, **how: Any) -> None:
        self.asked_for = {**how, "data": b"".join(how["data"])}

    def _raise_for_status(self, response: None) -> None:
        pass

    def _stream_helper(self, response: None, decode: bool) -> Iterator[Mapping[str, Any]]:
        yield from self.lines
        self.meanwhile()

    def remove_image(self, image: str, noprune: bool) -> None:
        self.removed.append(image)


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(image_build, "layers_of", lambda engine, image: ("sha256:aa",))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(
        '{"auths": {"registry.example.com": {"auth": "YTpi"}, "other.example.com": {"auth": "YTpi"}}}'
    )


def named(root: Path, **changes: Any) -> Build:
    """Return a build whose image is named by its content."""
    build = build_of(root, **changes)
    return replace(build, image=tagged("demo", context_of(build, "demo").version(build)))


def test_a_build_is_told(folder: Path) -> None:
    said: list[str] = []
    engine: Any = EngineSpeaks(
        [
            {"stream": "Step 1/2 : FROM base:1\n"},
            {"status": "Pulling from library/base", "id": "1"},
            {"status": "Downloading", "id": "aa", "progressDetail": {"current": 1, "total": 2}},
            {"stream": "\n"},
            {"stream": "Successfully built 0123\n"},
            {"aux": {"ID": "sha256:0123"}},
        ]
    )
    build = named(folder, args=(("A", "1"),))
    build_image(engine, build, "demo", said.append)
    assert said == [
        f"h1 builds {build.image} from {folder}",
        "Step 1/2 : FROM base:1",
        "Successfully built 0123",
    ]
    params = engine.asked_for["params"]
    assert (params["t"], params["buildargs"]) == (build.image, '{"http_proxy": "http://proxy", "A": "1"}')


def test_credentials_of_other_registries_stay_here(folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM registry.example.com/base:1\n")
    engine: Any = EngineSpeaks([])
    build_image(engine, named(folder), "demo", lambda line: None)
    sent = json.loads(base64.urlsafe_b64decode(engine.asked_for["headers"]["X-Registry-Config"]))
    assert list(sent) == ["registry.example.com"]


def test_a_failed_build_ends_with_its_last_lines(folder: Path) -> None:
    lines = [{"stream": f"line {number}\n"} for number in range(20)]
    engine: Any = EngineSpeaks([*lines, {"error": "The command returned a non-zero code: 3"}])
    with pytest.raises(HostError) as failed:
        build_image(engine, named(folder), "demo", lambda line: None)
    shown = [f"line {number}" for number in range(11, 20)]
    assert failed.value.code == "build-failed"
    assert [line.strip() for line in failed.value.message.splitlines()[1:]] == [
        *shown,
        "The command returned a non-zero code: 3",
    ]


def test_files_that_change_while_they_are_built_make_no_image(folder: Path) -> None:
    engine: Any = EngineSpeaks([], lambda: (folder / "run.sh").write_text("#!/bin/bash\n"))
    build = named(folder)
    with pytest.raises(HostError, match="changed while they were built"):
        build_image(engine, build, "demo", lambda line: None)
    assert engine.removed == [build.image]


# BuildKit.


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("RUN --mount=type=cache,target=/c make", True),
        ("COPY --link a /", True),
        ("# syntax=docker/dockerfile:1", True),
        ("RUN <<EOF\nmake\nEOF", True),
        ("COPY --chown=1 --from=base a /", False),
        ("RUN make --link", False),
    ],
)
def test_what_needs_buildkit(line: str, needs: bool) -> None:
    assert needs_buildkit(f"{line}\nFROM base:1\n") is needs


CLIENT = """\
#!{python}
import json, os, socket, sys
if sys.argv[1:] == ["--version"]:
    print("Docker version {version}, build 1")
elif sys.argv[1] == "buildx" and {version!r} < "23":
    sys.exit(1)
elif sys.argv[1:] != ["buildx", "version"]:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
        engine.sendall(b"ping")
        said = engine.recv(100).decode()
    about = dict(argv=sys.argv[1:], env=dict(os.environ), read=len(sys.stdin.buffer.read()), said=said)
    json.dump(about, open({told!r}, "w"))
    print("#1 built", flush=True)
    sys.exit({code})
"""


class EngineOfSockets(EngineSpeaks):
    """An engine that answers whoever dials it."""

    def dial(self) -> socket.socket:
        ours, its = socket.socketpair()

        def answer() -> None:
            with its:
                its.sendall(b"engine got " + its.recv(100))

        threading.Thread(target=answer, daemon=True).start()
        return ours


def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, code: int = 0) -> Path:
    """Put a `docker` first on PATH; return where it says how it was called."""
    told, folder = tmp_path / "told.json", tmp_path / "bin"
    folder.mkdir()
    text = CLIENT.format(python=sys.executable, version=version, told=str(told), code=code)
    (folder / "docker").write_text(text)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return told


@pytest.mark.parametrize(("version", "argv"), [("20.10.24", ["build"]), ("28.2.2", ["buildx", "build", "--load"])])
def test_buildkit_is_the_clients(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, argv: list[str]
) -> None:
    (folder / "Dockerfile").write_text("FROM base:1\nRUN --mount=type=cache,target=/c make\n")
    told = client(tmp_path, monkeypatch, version)
    said: list[str] = []
    build = named(folder, args=(("PATH", "/x"), ("WORD", "hidden")), target="last")
    engine: Any = EngineOfSockets([])
    build_image(engine, build, "demo", said.append)
    about = json.loads(told.read_text())
    assert said[1:] == ["#1 built"]
    assert (about["said"], about["read"] > 1000, about["env"]["WORD"]) == ("engine got ping", True, "hidden")
    assert about["argv"] == [
        *argv,
        *("--progress", "plain", "--network", "host", "--tag", build.image, "--file", "Dockerfile"),
        *("--target", "last", "--build-arg", "PATH=/x", "--build-arg", "WORD", "-"),
    ]
    assert not Path(about["env"]["DOCKER_HOST"].removeprefix("unix://")).exists()


def test_a_build_with_buildkit_fails(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "Dockerfile").write_text("FROM base:1\nRUN --mount=type=cache,target=/c make\n")
    client(tmp_path, monkeypatch, "20.10.24", code=3)
    engine: Any = EngineOfSockets([])
    with pytest.raises(HostError, match="#1 built"):
        build_image(engine, named(folder), "demo", lambda line: None)


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

    @contextmanager
    def asked(self) -> Iterator[Any]:
        yield self


def fleet_of(
    monkeypatch: pytest.MonkeyPatch, having: set[str], *, local: bool = False, processor: str = "x86_64"
) -> Any:
    sources = SimpleNamespace(have=lambda image: sorted(having))
    monkeypatch.setattr(building, "ImageSources", lambda jobs: sources)
    here = building.LocalTransport("localhost")
    jobs = {
        name: SimpleNamespace(engine=EngineWithImage(name, processor), transport=here if name == "localhost" else None)
        for name in ("h1", "h2", *(["localhost"] if local else []))
    }
    return SimpleNamespace(host_jobs=jobs, down={})


def plan_with(folder: Path, **changes: Any) -> Any:
    nodes = (SimpleNamespace(host=SimpleNamespace(name="h1")),)
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


@pytest.mark.parametrize("processor", ["aarch64", "arm64"])
def test_an_image_for_another_processor(
    folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str], processor: str
) -> None:
    fleet = fleet_of(monkeypatch, set(), processor=processor)
    with pytest.raises(HostError, match="is for amd64, and this host has arm64"):
        building.build(fleet, plan_with(folder, on="h2"), lambda line: None)
    assert fleet.host_jobs["h2"].engine.removed == ["demo:1"]


def test_a_builder_that_does_not_answer(folder: Path, monkeypatch: pytest.MonkeyPatch, built: list[str]) -> None:
    fleet = fleet_of(monkeypatch, set())
    fleet.down = {"h2": HostError("h2", "unreachable", "it does not answer")}
    with pytest.raises(HostError, match="does not answer"):
        building.build(fleet, plan_with(folder, on="h2"), lambda line: None)
    with pytest.raises(HostError, match="not among the hosts"):
        building.build(fleet, plan_with(folder, on="h9"), lambda line: None)
    assert built == []
