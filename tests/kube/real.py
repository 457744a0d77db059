"""A real API server as the cluster of a test, in a namespace of the test's own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from tests.kube.backend import Answer, Asked, path_of
from tests.kube.store import CORE, KUBEFLOW_PADDLE, PADDLE, PYTORCH, RUNTIME, TRAIN_JOB, Served
from tests.tools.apiservers import RealServer, crds

_NUMBERS = itertools.count()


class Real:
    """A namespace of a real server."""

    def __init__(self, server: RealServer) -> None:
        self.server, self.which = server, server.which
        operators = (PADDLE, KUBEFLOW_PADDLE, PYTORCH, TRAIN_JOB, RUNTIME) if crds() else ()
        self.served = (*CORE, *operators)
        self.namespace = f"ml-{os.getpid()}-{next(_NUMBERS)}"
        self.spaces: list[str] = []
        self.closing = False
        self._streams: set[Any] = set()
        self._lock = threading.Lock()
        self.make_namespace(self.namespace)

    def make_namespace(self, name: str) -> None:
        """Make a namespace whose pods need no token."""
        self.server.make_namespace(name)
        self.spaces.append(name)

    def find(self, kind: str, group: str | None = None) -> Served:
        return next(one for one in self.served if one.kind == kind and group in (None, one.group))

    def answer(self, asked: Asked) -> Answer:
        url = f"{asked.path}{'?' + urlencode(asked.query) if asked.query else ''}"
        headers = {"Content-Type": asked.content, **({"Impersonate-User": asked.user} if asked.user else {})}
        streams = asked.verb == "watch"
        answer = self.server.request(asked.method, url, asked.body or None, headers, stream=streams)
        if streams and answer.status == 200:
            return Answer(200, lines=self._lines(answer))
        data = answer.read()
        answer.release_conn()
        try:
            return Answer(answer.status, json.loads(data))
        except ValueError:  # of what it knows nothing
            return Answer(answer.status, data.decode())

    def _lines(self, answer: Any) -> Iterator[bytes]:
        """Yield the lines of a stream as they come, until the server ends it or this is closed."""
        with self._lock:
            self._streams.add(answer)
        rest = b""
        try:
            while not self.closing and (data := answer.read1(65536)):
                *whole, rest = (rest + data).split(b"\n")
                yield from whole
        except Exception:
            if not self.closing:
                raise
        finally:
            with self._lock:
                self._streams.discard(answer)
            answer.close()

    def close(self) -> None:
        self.closing = True
        with self._lock:
            streams = list(self._streams)
        for answer in streams:
            with contextlib.suppress(Exception):
                answer.shutdown()
        for name in self.spaces:
            self.server.request("DELETE", path_of(self.find("Namespace"), "", name), None, {}).release_conn()
