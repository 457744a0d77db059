"""Engines that load images and do nothing else, for a fleet without real ones: many hosts whose CPU is not the limit.

What is real: sshd, the docker client, the links, all of jobctl. What is not: an engine hashes each blob that it gets, and
notes which layers it has; it unpacks nothing. As Docker Engine 26 with a store of layers, it takes archives that lack
layers which it has, and refuses others.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import os
import re
import socketserver
import tarfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from jobctl.jobspec.deploy.host.scripts.saved_image import BLOBS, SavedBytes
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host

CHUNK = 1 << 20
INFO = {"ID": "loading", "ServerVersion": "26.1.5", "DriverStatus": [], "SecurityOptions": [], "DockerRootDir": "/"}
_IMAGE = re.compile(r"(?:/v[\d.]+)?/images/(.+?)(?:/(json|history|get))?")


class Archive:
    """An image as Docker Engine 26 saves it: layers of random bytes, which are files of `folder`."""

    def __init__(self, folder: Path, name: str, layers: Sequence[Path]) -> None:
        self.name, self.path = name, folder / f"{name.replace(':', '-').replace('/', '-')}.tar"
        digests = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in layers}
        diffs = [f"sha256:{digest}" for digest in digests]
        config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs}})
        digest = hashlib.sha256(config.encode()).hexdigest()
        listing = [{"Config": BLOBS + digest, "RepoTags": [name], "Layers": [BLOBS + one for one in digests]}]
        with tarfile.open(self.path, "w") as archive:
            for one, path in digests.items():
                archive.add(path, BLOBS + one)
            for place, text in ((BLOBS + digest, config), ("manifest.json", json.dumps(listing))):
                member = tarfile.TarInfo(place)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))


def layer(path: Path, size: int) -> Path:
    """Write a layer of so many bytes that nobody can compress."""
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo(path.name)
        member.size = size
        archive.addfile(member, _Random())  # type: ignore[arg-type]  # all that it needs is `read`
    return path


class _Random:
    def read(self, size: int) -> bytes:
        return os.urandom(size)


class LoadingEngine:
    """One host's engine. `images` are the layers of each by name, `sizes` those of layers in bytes."""

    def __init__(self, socket: Path) -> None:
        self.images: dict[str, list[str]] = {}
        self.sizes: dict[str, int] = {}
        self.archives: dict[str, Path] = {}  # what it can save
        self._server = _Server(str(socket), type("Handler", (_Handler,), {"engine": self}))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def has(self, archive: Archive) -> None:
        """Have an image, as one that has saved it."""
        with archive.path.open("rb") as file:
            self.load(iter(lambda: file.read(CHUNK), b""))
        self.archives[archive.name] = archive.path

    def load(self, pieces: Iterator[bytes]) -> None:
        """Load an archive. Raises ValueError if it is not whole, or not what it says."""
        small, come = dict[str, bytes](), dict[str, int]()
        reader: Any = SavedBytes(pieces)
        with tarfile.open(fileobj=reader, mode="r|", bufsize=CHUNK) as archive:
            for member in archive:
                content = archive.extractfile(member)
                digest, kept = hashlib.sha256(), b""
                while content is not None and (piece := content.read(CHUNK)):
                    digest.update(piece)
                    kept = piece if member.size <= CHUNK else b""
                small[member.name] = kept
                if member.name.startswith(BLOBS):
                    come[f"sha256:{digest.hexdigest()}"] = member.size
                    if digest.hexdigest() != member.name[len(BLOBS) :]:
                        raise ValueError(f"{member.name} is not what it says")
        for one in json.loads(small["manifest.json"]):
            layers = json.loads(small[one["Config"]])["rootfs"]["diff_ids"]
            if lacking := [layer for layer in layers if layer not in come and layer not in self.sizes]:
                raise ValueError(f"open blobs/sha256/{lacking[0][7:]}: no such file or directory")
            self.sizes |= {layer: come[layer] for layer in layers if layer in come}
            self.images |= dict.fromkeys(one["RepoTags"], layers)

    def forget(self, name: str) -> None:
        """Remove an image, and the layers that no other one has."""
        self.images.pop(name, None)
        kept = {layer for layers in self.images.values() for layer in layers}
        self.sizes = {layer: size for layer, size in self.sizes.items() if layer in kept}

    def told(self, name: str) -> dict[str, Any] | None:
        """Return what it says of an image, by its name or its id; None if it has none."""
        for one, layers in self.images.items():
            own = "sha256:" + hashlib.sha256(one.encode() + "".join(layers).encode()).hexdigest()
            if name in (one, own):
                size = sum(self.sizes[layer] for layer in layers)
                root = {"Type": "layers", "Layers": layers}
                known = {"RepoTags": [one], "RepoDigests": [], "Size": size, "RootFS": root, "Config": {}}
                return {"Id": own, "Architecture": "amd64", "Os": "linux", **known}
        return None

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(http.server.BaseHTTPRequestHandler):
    """As much of the engine's API as images need."""

    protocol_version = "HTTP/1.1"
    engine: LoadingEngine

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        """A client at a Unix socket has no address."""
        return ""

    def do_GET(self) -> None:
        """Answer a question, or save an image."""
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path.endswith(("/_ping", "/info", "/version")):
            self._answer({**INFO, "ApiVersion": "1.45", "MinAPIVersion": "1.24", "Version": "26.1.5"})
        elif path.endswith("/containers/json"):
            self._answer([])
        elif path.endswith("/images/json"):
            self._answer([self.engine.told(name) for name in self.engine.images])
        elif path.endswith("/images/get"):
            self._save(query["names"][0])
        else:
            self._tell_of(path)

    do_HEAD = do_GET

    def _tell_of(self, path: str) -> None:
        found = _IMAGE.fullmatch(path)
        name = unquote(found[1]) if found else ""
        told = self.engine.told(name)
        if found is None or told is None:
            self._answer({"message": f"No such image: {name}"}, 404)
        elif found[2] == "get":
            self._save(name)
        elif found[2] == "history":
            layers = reversed(self.engine.images[told["RepoTags"][0]])
            self._answer([{"Size": self.engine.sizes[layer]} for layer in layers])
        else:
            self._answer(told)

    def _save(self, name: str) -> None:
        path = self.engine.archives[name]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-tar")
        self.send_header("Content-Length", str(path.stat().st_size))
        self.end_headers()
        with path.open("rb") as file:
            self.connection.sendfile(file)

    def do_POST(self) -> None:
        """Load an image, or make a container, which is nothing."""
        path = urlsplit(self.path).path
        body = self._body()
        if path.endswith("/images/load"):
            try:
                self.engine.load(body)
            except (ValueError, KeyError, tarfile.TarError) as error:
                self._answer({"error": str(error)})
            else:
                self._answer({"stream": "Loaded image\n"})
        else:
            for _ in body:
                pass
            self._answer({"Id": "0" * 64, "Warnings": []}, 201)
        for _ in body:
            pass

    def do_DELETE(self) -> None:
        """Remove an image, or a container."""
        path = urlsplit(self.path).path
        if found := _IMAGE.fullmatch(path):
            self.engine.forget(unquote(found[1]))
        self._answer([])

    def _body(self) -> Iterator[bytes]:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            left = int(self.headers.get("Content-Length") or 0)
            while left and (piece := self.rfile.read(min(left, CHUNK))):
                left -= len(piece)
                yield piece
            return
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _answer(self, value: object, status: int = 200) -> None:
        text = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Api-Version", "1.45")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)


class LoadingFleet(Fleet):
    """Hosts with a docker client, and no engine: to be made with `engines=False`."""

    def _start(self, host: Host) -> None:
        super()._start(host)
        host.install_docker()


@contextlib.contextmanager
def loading(sockets: Sequence[Path]) -> Iterator[list[LoadingEngine]]:
    """Have an engine at each socket for the length of the `with` block."""
    made = [LoadingEngine(socket) for socket in sockets]
    try:
        yield made
    finally:
        for engine in made:
            engine.close()
