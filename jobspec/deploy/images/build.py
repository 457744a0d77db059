"""Images that are built: a host's engine gets the context through its API, and tells how the build goes.

That way is open with Docker 20.10 and later, needs no plugin on any machine, and has no argument of the build in
anybody's argv. Only the credentials of registries that the Dockerfile names go along. It has no BuildKit: what needs
that goes another way (buildkit.py).
"""

from __future__ import annotations

import io
import json
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from subprocess import CalledProcessError
from typing import Any

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.tar import Tar
from jobctl.jobspec.deploy.images.buildkit import builder, lines_of
from jobctl.jobspec.deploy.images.copy import layers_of
from jobctl.jobspec.deploy.images.credentials import reading_credentials
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.store.build_context import BuildContext, context_of
from jobctl.jobspec.deploy.store.dockerfile import images, needs_buildkit, text_of
from jobctl.jobspec.plan.sent import Build

MAX_ERROR_LINES = 10  # lines of a failed build that its error has
HUB = "https://index.docker.io/v1/"  # what engines call the registry of names without one


def build_image(engine: Engine, build: Build, job: str, say: Callable[[str], None]) -> None:
    """Have an engine build an image; `say` gets each line that it prints. Raises HostError, DeployError."""
    host, context = engine.transport.host, context_of(build, job)
    say(f"{host} builds {build.image} from {build.context}")
    told: deque[str] = deque(maxlen=MAX_ERROR_LINES)

    def refused(words: str) -> HostError:
        return _failed(host, build, [*told, words] if words else told)

    command = builder() if needs_buildkit(text_of(context.dockerfile)) else None
    try:
        if command is not None:
            printed = lines_of(engine, command, build, context.name, packed(context))
        else:
            with reading_credentials(host, build.image):
                known = _credentials(registries(context.dockerfile, build.args))
            printed = _printed(engine, build, context, known, refused)
        for line in (line for text in printed for line in text.splitlines() if line.strip()):
            told.append(line)
            say(line)
    except CalledProcessError as error:
        raise _failed(host, build, told) from error
    if layers_of(engine, build.image) is None:
        raise _failed(host, build, [*told, "the engine says nothing, and has no such image now"])
    _refuse_changed(engine, build, job)


def _printed(
    engine: Engine,
    build: Build,
    context: BuildContext,
    known: Mapping[str, Any],
    refused: Callable[[str], HostError],
) -> Iterator[str]:
    """Yield what the engine's own builder prints, which gets the `known` credentials. Raises HostError if it fails."""
    with engine.asked(refused) as client:
        for line in _asked(client, build, context, known):
            if text := _words(line):
                yield text
            if "error" in line:
                raise refused("")


def _asked(client: Any, build: Build, context: BuildContext, known: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what the engine says of a build. It may be silent for as long as its commands are.

    Not by the SDK's `build`, which sends all credentials of the user. Containers of the build have the host's network, as
    those of jobs have.
    """
    from docker.auth import encode_header

    params = {
        "t": build.image,
        "dockerfile": context.name,
        "buildargs": json.dumps({**client._proxy_configs.get_environment(), **dict(build.args)}),
        "target": build.target,
        "rm": True,
        "forcerm": True,
        "networkmode": "host",
    }
    headers: dict[str, Any] = {"Content-Type": "application/x-tar"}
    if known:
        headers["X-Registry-Config"] = encode_header(known)
    url = client._url("/build")
    response = client._post(url, data=packed(context), params=params, headers=headers, stream=True, timeout=None)
    client._raise_for_status(response)
    yield from client._stream_helper(response, decode=True)


def packed(context: BuildContext) -> Iterator[bytes]:
    """Yield a tar file of what the engine gets: the same for the same version, except times."""
    files = context.sent
    folders = {str(folder) for file in files for folder in PurePosixPath(file.name).parents} - {"."}
    newest = int(max((file.info.st_mtime for file in files), default=0))
    yield from (_member(name, None, newest) for name in sorted(folders))
    yield from (_member(name, content, newest) for name, content in context.added)
    yield from Tar(files, plain=True)


def _member(name: str, content: bytes | None, time: int) -> bytes:
    """Return a folder (no content) or a file as a part of a tar file."""
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = 0o644, time
    if content is None:
        member.type, member.mode = tarfile.DIRTYPE, 0o755
    member.size = len(content or b"")
    with io.BytesIO() as made:
        with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(member, io.BytesIO(content or b""))
            size = archive.offset
        return made.getvalue()[:size]


def _words(line: Mapping[str, Any]) -> str:
    """Return what a person reads in a line of the engine's; nothing for how far a layer of a base image is."""
    if "error" in line:
        return str(line["error"]).strip()
    if "id" in line:
        return ""
    return str(line.get("stream") or line.get("status") or "").rstrip()


def _failed(host: str, build: Build, told: Iterable[str]) -> HostError:
    """Return the error of a build, with what was printed last."""
    lines = list(told)[-MAX_ERROR_LINES:]
    said = "\n".join(f"  {line}" for line in lines)
    words = " ".join(lines).lower()
    hint = next((hint for sign, hint in _HINTS if sign in words), None)
    return HostError(host, "build-failed", f"cannot build `{build.image}`:\n{said}", hint)


_HINTS = (
    ("buildkit", "this machine's `docker` needs BuildKit for that: install its plugin `docker-buildx`"),
    ("no space left", "make room where Docker keeps its data (`docker system df`)"),
    ("unauthorized:", "`docker login` here: your credentials are used, not the host's"),
    (
        "access denied for",
        "is the name after FROM right? `docker login` here: your credentials are used, not the host's",
    ),
)


def _refuse_changed(engine: Engine, build: Build, job: str) -> None:
    """Take the tag away again if files have changed meanwhile: it would name another content. Raises HostError."""
    if context_of(build, job).version(build) == build.image.rpartition(":")[2].rpartition("-")[2]:
        return
    remove_name(engine, build.image)
    message = f"files in {build.context} changed while they were built"
    raise HostError(engine.transport.host, "build-changed", message, "the same command again builds what is there now")


def remove_name(engine: Engine, image: str) -> None:
    """Take a name away from an image, whose layers stay for the next build."""
    with engine.asked() as client:
        client.remove_image(image, noprune=True)


# Credentials.


def registries(dockerfile: bytes, args: Iterable[tuple[str, str]]) -> set[str]:
    """Return the registries of the images that a Dockerfile names."""
    from docker.auth import resolve_repository_name
    from docker.errors import DockerException

    found = set()
    for name in images(text_of(dockerfile), args):
        with suppress(DockerException):  # the engine says what is wrong with it
            found.add(resolve_repository_name(name)[0])
    return found


def _credentials(names: Iterable[str]) -> dict[str, Any]:
    """Return the user's own credentials for registries, as engines take them."""
    from docker.auth import load_config

    known = load_config()
    found = {name: known.resolve_authconfig(name) for name in sorted(names)}
    return {HUB if name == "docker.io" else name: login for name, login in found.items() if login}
