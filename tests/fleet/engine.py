"""Asks a Docker Engine at its socket: the command `docker` takes a hundred times the CPU for that."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds for an answer


class _Connection(http.client.HTTPConnection):
    """A connection to a socket of this machine."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def ask(path: Path, question: str) -> Any:
    """Return what an engine answers to a GET request. Raises OSError, or HTTPException where it ends meanwhile."""
    with contextlib.closing(_Connection(path)) as connection:
        connection.request("GET", question)
        answer = connection.getresponse()
        text = answer.read()
    if answer.status != 200:
        raise OSError(f"{path} answers {question} with {answer.status}: {text.decode(errors='replace')}")
    return json.loads(text)


def containers(path: Path) -> list[str]:
    """Return the names of all containers, running or not."""
    return sorted(one["Names"][0].lstrip("/") for one in ask(path, "/containers/json?all=1"))


def images(path: Path) -> list[str]:
    """Return the names of all images, and the ids of those that have none."""
    found = ask(path, "/images/json")
    return sorted(name for image in found for name in image["RepoTags"] or [image["Id"]])
