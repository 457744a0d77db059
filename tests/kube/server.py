"""The API server that jobctl sees: a proxy in front of a cluster, the fake one or a real one.

What goes wrong, goes wrong here (`fail`, `denied`), and so do the parts of a kubelet that no API server has: logs that are
followed, exec over websockets. All else is the cluster's (backend.py).
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.kube.backend import Asked, Backend, path_of, refusal
from tests.kube.handler import TOKEN, Handler, Threads
from tests.kube.store import Object, Served

_CREATE, _MERGE = "application/json", "application/merge-patch+json"


@dataclass
class Fault:
    """What goes wrong with the next `times` requests that match.

    `kind`: an HTTP status, `drop` (the connection closes without an answer), `cut` (it closes after `after` lines and a
    half of a stream), `expired` (a watch tells that its version is forgotten), or `slow` (what the cluster has answered
    waits for `gate`).
    """

    verb: str
    plural: str
    kind: int | str
    times: int = 1
    after: int = 0
    skip: int = 0  # requests that still go well
    name: str = ""  # the only object whose requests match
    retry_after: int | None = None
    words: str = ""  # what a status comes with
    gate: threading.Event = field(default_factory=threading.Event)
    met: threading.Event = field(default_factory=threading.Event)  # a request has come that it is for

    def concerns(self, asked: Asked) -> bool:
        """Say whether a request is one of those that go wrong."""
        return self.verb == asked.verb and self.plural in (asked.resource, "*") and self.name in (asked.name, "")


@dataclass
class Run:
    """One run of a container, and what it printed."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    over: bool = False


class ApiServer:
    """A cluster with one namespace, whose context `test` is the only one of its kubeconfig."""

    def __init__(self, certificate: Path, backend: Backend) -> None:
        self.backend, self.namespace = backend, backend.namespace
        self.faults: list[Fault] = []
        self.denied: set[tuple[str, str]] = set()  # verb and resource
        self.user: str | None = None  # in whose name clients ask, where roles are real
        self.requests: list[str] = []
        self.runs: dict[str, list[Run]] = {}  # by the uid of the pod
        self.protocols = ("v5.channel.k8s.io", "v4.channel.k8s.io")
        self.environment: dict[str, str] = {"PATH": os.environ["PATH"]}
        self.made: list[Callable[[Object], None]] = []  # controllers, told of what clients create
        self.altered: list[Callable[[Object], None]] = []  # and of what they change in part
        self.said = threading.Condition()
        self.closing = False
        handler = type("Bound", (Handler,), {"api": self})
        self.http = Threads(("127.0.0.1", 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.certificate = certificate
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.http.server_address[1]}"

    @property
    def store(self) -> Any:
        """The objects of the fake cluster, for tests that run against no other."""
        return self.backend.store  # type: ignore[attr-defined]

    def served(self, kind: str, group: str | None = None) -> Served:
        return self.backend.find(kind, group)

    def kubeconfig(self, path: Path, token: str = TOKEN) -> Path:
        """Write a kubeconfig for this server."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "here", "user": "me", "namespace": self.namespace}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def close(self) -> None:
        self.closing = True
        for fault in self.faults:
            fault.gate.set()
        with self.said:
            self.said.notify_all()
        self.backend.close()
        self.http.shutdown()
        self.http.server_close()

    # What tests do to it.

    def fail(self, verb: str, plural: str, kind: int | str, **more: Any) -> Fault:
        self.faults.append(Fault(verb, plural, kind, **more))
        return self.faults[-1]

    def fault_of(self, asked: Asked) -> Fault | None:
        with self.said:  # requests come side by side
            for fault in self.faults:
                if fault.times > 0 and fault.concerns(asked):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    fault.met.set()
                    return fault
        return None

    def print(self, pod: str, text: str, at: str | None = None) -> None:
        """Have the container of a pod print a line."""
        uid = self.get("Pod", pod)["metadata"]["uid"]
        with self.said:
            runs = self.runs.setdefault(uid, [Run()])
            runs[-1].lines.append((at or _now(), text))
            self.said.notify_all()

    def end_run(self, pod: str, *, again: bool) -> None:
        """End the present run of a pod's container, and begin another."""
        uid = self.get("Pod", pod)["metadata"]["uid"]
        with self.said:
            runs = self.runs.setdefault(uid, [Run()])
            runs[-1].over = True
            if again:
                runs.append(Run())
            self.said.notify_all()

    # What is in the cluster, as a controller or a person sees and changes it. Each raises Refused.

    def ask(
        self,
        method: str,
        kind: Served | str,
        name: str = "",
        sub: str = "",
        body: Object | None = None,
        *,
        content: str = _CREATE,
        namespace: str | None = None,
        **query: str,
    ) -> Any:
        """Return what is answered to a request for objects of a kind."""
        served = kind if isinstance(kind, Served) else self.served(kind)
        path = path_of(served, self.namespace if namespace is None else namespace, name, sub)
        answer = self.backend.answer(Asked(method, path, query, body or {}, content))
        if answer.status >= 300:
            raise refusal(answer.status, answer.value)
        return answer.lines if answer.lines is not None else answer.value

    def get(self, kind: Served | str, name: str) -> Object:
        found: Object = self.ask("GET", kind, name)
        return found

    def list(self, kind: Served | str, selector: str = "") -> list[Object]:
        """Return the objects of a kind, by their names."""
        found = self.ask("GET", kind, **({"labelSelector": selector} if selector else {}))["items"]
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    def create(self, kind: Served | str, thing: Object, **more: Any) -> Object:
        """Create an object; its status, which nobody else may say, after that."""
        served = kind if isinstance(kind, Served) else self.served(kind)
        whole = {"apiVersion": served.api_version, "kind": served.kind, **thing}
        made: Object = self.ask("POST", served, body={k: v for k, v in whole.items() if k != "status"}, **more)
        return self.status(served, made["metadata"]["name"], **thing["status"]) if "status" in thing else made

    def merge(self, kind: Served | str, name: str, change: Object, manager: str = "test") -> Object:
        """Change parts of an object."""
        made: Object = self.ask("PATCH", kind, name, body=change, content=_MERGE, fieldManager=manager)
        return made

    def status(self, kind: Served | str, name: str, **status: Any) -> Object:
        """Set parts of an object's status."""
        body = {"status": status}
        made: Object = self.ask("PATCH", kind, name, "status", body, content=_MERGE, fieldManager="controller")
        return made

    def delete(self, kind: Served | str, name: str, policy: str = "Background") -> None:
        """Delete an object; a pod has no time to end."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, "gracePeriodSeconds": 0}
        self.ask("DELETE", kind, name, body=body)

    def names(self) -> list[str]:
        """Return the objects of the namespace, but for those that every namespace has, and events."""
        own = [one for one in self.backend.served if one.namespaced and one.kind != "Event"]
        return sorted(f"{one.kind} {thing['metadata']['name']}" for one in own for thing in self.list(one))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 1_000_000_000:09d}Z"
