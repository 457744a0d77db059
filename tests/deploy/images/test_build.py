"""Images that are built: what the engine and BuildKit are asked, and what is told of it."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.images import build as image_build
from jobctl.jobspec.deploy.images import buildkit
from jobctl.jobspec.deploy.images.build import build_image, registries
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.store.build_context import context_of
from jobctl.jobspec.deploy.store.dockerfile import needs_buildkit
from jobctl.jobspec.plan.sent import Build
from jobctl.jobspec.planner.code import tagged
from tests.deploy.images.built import build_of, folder_to_build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_to_build(tmp_path)


def test_registries_of_a_dockerfile() -> None:
    text = (
        b"ARG WHERE=unused.example.com\nARG TAG='2'\nFROM --platform=linux/amd64 ${WHERE}/lab/torch:${TAG} AS base\n"
        b"from debian:12\nCOPY --from=base /a /b\nCOPY --from=tools.example.com:5000/uv:1 \\\n /uv /bin\n"
        b"FROM\t${NONE:-quay.io}/x\nFROM scratch\n"
    )
    assert registries(text, [("WHERE", "registry.example.com")]) == {
        *("registry.example.com", "docker.io", "tools.example.com:5000", "quay.io")
    }


def test_a_byte_order_mark_is_no_part_of_a_dockerfile() -> None:
    assert registries(b"\xef\xbb\xbfFROM registry.example.com/lab/torch:2\r\n", ()) == {"registry.example.com"}


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


def test_credentials_that_cannot_be_read_are_no_failure_of_the_engine(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a config.json of Docker Desktop is used elsewhere. The engine is not even asked."""
    (tmp_path / "config.json").write_text('{"credsStore": "none-such"}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    host: Any = SimpleNamespace(host="h1")
    engine = Engine(host)
    with (
        pytest.warns(UserWarning, match="docker-credential-none-such not installed"),
        pytest.raises(HostError, match=r"^h1: cannot use your Docker credentials for `demo:1`: ") as failed,
    ):
        build_image(engine, build_of(folder), "demo", lambda line: None)
    assert (failed.value.code, failed.value.hint) == ("bad-credentials", "`docker login` here")


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
        ("RUN\t--mount=type=cache,target=/c make", True),
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


@pytest.mark.parametrize(
    ("key", "value", "hidden"),
    [
        ("SSH_PRIVATE_KEY", "s3cr3t", True),
        ("SSH_AUTH_SOCK", "/a", False),
        ("path", "/x", True),
        ("LD_PRELOAD", "/x", False),
        ("https_proxy", "http://proxy:3128", False),
        ("NO_PROXY", "a,.b", False),
    ],
)
def test_only_what_would_change_the_client_is_in_its_arguments(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str, hidden: bool
) -> None:
    (folder / "Dockerfile").write_text("FROM base:1\nRUN --mount=type=cache,target=/c make\n")
    told = client(tmp_path, monkeypatch, "28.2.2")
    engine: Any = EngineOfSockets([])
    build_image(engine, named(folder, args=((key, value),)), "demo", lambda line: None)
    about = json.loads(told.read_text())
    assert about["argv"][-3:] == ["--build-arg", key if hidden else f"{key}={value}", "-"]
    assert (about["env"].get(key) == value) is hidden


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("http_proxy", "http://me:s3cr3t@proxy", "name the proxy in `proxies`"),
        ("HTTPS_PROXY", "me:s3cr3t@proxy:3128", "name the proxy in `proxies`"),
        ("DOCKER_PASSWORD", "s3cr3t", "another name"),
        ("DOCKER_AUTH_CONFIG", "s3cr3t", "another name"),
    ],
)
def test_credentials_that_would_be_in_arguments_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str, hint: str
) -> None:
    (folder / "Dockerfile").write_text("FROM base:1\nRUN --mount=type=cache,target=/c make\n")
    told = client(tmp_path, monkeypatch, "28.2.2")
    engine: Any = EngineOfSockets([])
    with pytest.raises(HostError, match=f"`{key}` looks like credentials") as failed:
        build_image(engine, named(folder, args=((key, value),)), "demo", lambda line: None)
    assert (hint in str(failed.value.hint), "s3cr3t" in failed.value.message, told.exists()) == (True, False, False)


def test_a_build_with_buildkit_fails(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "Dockerfile").write_text("FROM base:1\nRUN --mount=type=cache,target=/c make\n")
    client(tmp_path, monkeypatch, "20.10.24", code=3)
    engine: Any = EngineOfSockets([])
    with pytest.raises(HostError, match="#1 built"):
        build_image(engine, named(folder), "demo", lambda line: None)


def test_a_file_that_changes_while_a_build_with_buildkit_gets_it_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "Dockerfile").write_text("FROM base:1\nRUN --mount=type=cache,target=/c make\n")
    client(tmp_path, monkeypatch, "20.10.24", code=3)

    def breaks(context: Any) -> Iterator[bytes]:
        yield b"begin"
        raise DeployError("run.sh was changed")

    monkeypatch.setattr(image_build, "packed", breaks)
    engine: Any = EngineOfSockets([])
    with pytest.raises(DeployError, match=r"^run.sh was changed$"):
        build_image(engine, named(folder), "demo", lambda line: None)


def test_a_context_that_breaks_off_is_no_whole_archive(folder: Path) -> None:
    """Else an image without the files that were to come has the name of one with them."""
    (folder / "run.sh").write_bytes(b"1" * 512)  # nothing is between it and the next file
    context = context_of(build_of(folder), "demo")
    assert context.version(build_of(folder))
    (folder / "run.sh").write_bytes(b"2" * 512)
    sent = io.BytesIO()
    with pytest.raises(DeployError, match=r"run.sh was changed"):
        sent.writelines(image_build.packed(context))
    assert subprocess.run(["tar", "-tf", "-"], input=sent.getvalue(), capture_output=True).returncode == 2


def test_a_client_reaches_an_engine_where_the_folder_of_temporary_files_is_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a socket has 107 bytes at most."""
    folder = tmp_path / ("scratch" * 15)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    engine: Any = None
    with buildkit._listening(engine) as address:
        assert (address.startswith("unix:///"), len(address) <= len("unix://") + 107) == (True, True)
