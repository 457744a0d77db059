"""A server that speaks the parts of the Kubernetes API that jobctl uses, in the forms that its documentation gives.

https://kubernetes.io/docs/reference/using-api/api-concepts/: lists in pages, watches with bookmarks and 410, server-side
apply, logs that are followed, exec over websockets, reviews of rights. Faults are switched on by tests.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from kube.store import CORE, Object, Refused, Served, Store, chosen
from kube.websocket import Channels, accept, execute

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
TOKEN = "let-me-in"


@dataclass
class Fault:
    """What goes wrong with the next `times` requests that match.

    `kind`: an HTTP status, `drop` (the connection closes without an answer), or `cut` (it closes after `after` lines and
    a half of a stream).
    """

    verb: str
    plural: str
    kind: int | str
    times: int = 1
    after: int = 0
    skip: int = 0  # requests that still go well
    retry_after: int | None = None


@dataclass
class Run:
    """One run of a container, and what it printed."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    over: bool = False


@dataclass
class Request:
    """One request, as rights are given for it."""

    verb: str
    served: Served
    namespace: str
    name: str
    sub: str
    query: dict[str, str]

    @property
    def resource(self) -> str:
        return f"{self.served.plural}/{self.sub}" if self.sub else self.served.plural


class ApiServer:
    """A cluster with one namespace, `ml`, whose context `test` is the only one of its kubeconfig."""

    def __init__(self, certificate: Path, served: tuple[Served, ...] = CORE) -> None:
        self.store = Store(served)
        self.faults: list[Fault] = []
        self.denied: set[tuple[str, str]] = set()  # verb and resource
        self.requests: list[str] = []
        self.runs: dict[str, list[Run]] = {}  # by the uid of the pod
        self.protocols = ("v5.channel.k8s.io", "v4.channel.k8s.io")
        self.environment: dict[str, str] = {"PATH": os.environ["PATH"]}
        self.page = 500
        self.version = "v1.34.1"
        self.said = threading.Condition()
        self.closing = False
        self.store.put(self.served("Namespace"), "", {"metadata": {"name": "ml"}, "status": {"phase": "Active"}})
        for number in range(3):
            has = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}
            self.store.put(
                self.served("Node"), "", {"metadata": {"name": f"worker-{number}"}, "status": {"allocatable": has}}
            )
        handler = type("Bound", (Handler,), {"api": self})
        self.http = _Threads(("127.0.0.1", 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.certificate = certificate
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.http.server_address[1]}"

    def served(self, kind: str, group: str | None = None) -> Served:
        return next(one for one in self.store.served if one.kind == kind and group in (None, one.group))

    def kubeconfig(self, path: Path, token: str = TOKEN, namespace: str | None = "ml") -> Path:
        """Write a kubeconfig for this server."""
        inside = {"namespace": namespace} if namespace else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {"name": "here", "cluster": {"server": self.url, "certificate-authority": str(self.certificate)}}
            ],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "here", "user": "me", **inside}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def close(self) -> None:
        self.closing = True
        with self.said:
            self.said.notify_all()
        with self.store.changed:
            self.store.changed.notify_all()
        self.http.shutdown()
        self.http.server_close()

    # What tests do to it.

    def fail(self, verb: str, plural: str, kind: int | str, **more: Any) -> None:
        self.faults.append(Fault(verb, plural, kind, **more))

    def fault_of(self, verb: str, plural: str) -> Fault | None:
        with self.said:  # requests come side by side
            for fault in self.faults:
                if fault.times > 0 and fault.verb == verb and fault.plural in (plural, "*"):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def print(self, pod: str, text: str, at: str | None = None) -> None:
        """Have the container of a pod print a line."""
        uid = self.store.get(self.served("Pod"), "ml", pod).thing["metadata"]["uid"]
        with self.said:
            runs = self.runs.setdefault(uid, [Run()])
            runs[-1].lines.append((at or _now(), text))
            self.said.notify_all()

    def end_run(self, pod: str, *, again: bool) -> None:
        """End the present run of a pod's container, and begin another."""
        uid = self.store.get(self.served("Pod"), "ml", pod).thing["metadata"]["uid"]
        with self.said:
            runs = self.runs.setdefault(uid, [Run()])
            runs[-1].over = True
            if again:
                runs.append(Run())
            self.said.notify_all()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 1_000_000_000:09d}Z"


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    api: ApiServer

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        url = urlsplit(self.path)
        many = parse_qs(url.query, keep_blank_values=True)
        query = {key: values[0] for key, values in many.items()}
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        self.api.requests.append(f"{method} {self.path}")
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Unauthorized", "Unauthorized")
            if self._meta(url.path):
                return
            request = self._request(method, url.path, query)
            self._fail_as_told(request)
            self._allow(request)
            self._answer(request, body, many)
        except Refused as refused:
            self._json(refused.code, refused.status())
        except (BrokenPipeError, ConnectionError, ssl.SSLError):
            self.close_connection = True

    # What is no object.

    def _meta(self, path: str) -> bool:
        """Answer discovery."""
        if path == "/version":
            self._json(200, {"major": "1", "minor": "34", "gitVersion": self.api.version})
            return True
        found = re.fullmatch(r"/apis/([^/]+)", path)
        if found:
            group = found.group(1)
            versions = sorted({one.version for one in self.api.store.served if one.group == group})
            if not versions:
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            self._json(200, {"kind": "APIGroup", "name": group, "versions": [{"version": v} for v in versions]})
            return True
        found = re.fullmatch(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/?", path)
        if found:
            where = found.group("group") or "", found.group("version")
            kinds = [one for one in self.api.store.served if (one.group, one.version) == where]
            if not kinds:
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            resources = [{"name": k.plural, "kind": k.kind, "namespaced": k.namespaced, "verbs": []} for k in kinds]
            self._json(200, {"kind": "APIResourceList", "resources": resources})
            return True
        return False

    # Requests.

    def _request(self, method: str, path: str, query: dict[str, str]) -> Request:
        if path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            review = Served("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False)
            return Request("create", review, "", "", "", query)
        found = _PATH.fullmatch(path)
        if found is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        served = self.api.store.find(found["group"] or "", found["version"], found["plural"])
        name, sub = found["name"] or "", found["sub"] or ""
        reading = "watch" if query.get("watch") == "true" else "get" if name else "list"
        verb = {"GET": reading, "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]
        return Request(verb, served, found["namespace"] or "", name, sub, query)

    def _fail_as_told(self, request: Request) -> None:
        fault = self.api.fault_of(request.verb, request.resource)
        if fault is None:
            return
        if fault.kind == "drop":
            self.close_connection = True
            raise ConnectionError
        if fault.kind == "cut":
            self.cut = fault.after
            return
        words = {
            409: "Conflict",
            410: "Expired",
            429: "TooManyRequests",
            500: "InternalError",
            503: "ServiceUnavailable",
        }
        self.retry_after = fault.retry_after
        raise Refused(int(fault.kind), words.get(int(fault.kind), "Unknown"), f"told to fail with {fault.kind}")

    def _allow(self, request: Request) -> None:
        if (request.verb, request.resource) in self.api.denied:
            served = request.served
            inside = f' in the namespace "{request.namespace}"' if request.namespace else " at the cluster scope"
            message = (
                f'{served.resource} is forbidden: User "me" cannot {request.verb} resource "{request.resource}" '
                f'in API group "{served.group}"{inside}'
            )
            raise Refused(403, "Forbidden", message, {"kind": served.plural, "group": served.group})

    def _answer(self, request: Request, body: Object, many: dict[str, list[str]]) -> None:
        store, served, inside, name = self.api.store, request.served, request.namespace, request.name
        if served.kind == "SelfSubjectAccessReview":
            asked = body["spec"]["resourceAttributes"]
            resource = asked["resource"] + (f"/{asked['subresource']}" if asked.get("subresource") else "")
            self._json(201, {**body, "status": {"allowed": (asked["verb"], resource) not in self.api.denied}})
        elif request.sub == "log":
            self._log(request)
        elif request.sub == "exec":
            self._exec(request, many)
        elif request.verb == "get":
            self._json(200, store.get(served, inside, name).thing)
        elif request.verb == "list":
            self._list(request)
        elif request.verb == "watch":
            self._watch(request)
        elif request.verb == "patch":
            if self.headers["Content-Type"] == "application/merge-patch+json":
                self._json(200, store.merge(served, inside, name, body, f"{request.query['fieldManager']}-update"))
                return
            assert self.headers["Content-Type"] == "application/apply-patch+yaml"
            manager, force = request.query["fieldManager"], request.query.get("force") == "true"
            dry = request.query.get("dryRun") == "All"
            thing, new = store.apply(served, inside, name, body, manager, force=force, dry_run=dry)
            self._json(201 if new else 200, thing)
        elif request.verb == "delete":
            uid = (body.get("preconditions") or {}).get("uid")
            store.delete(served, inside, name, uid=uid, foreground=body.get("propagationPolicy") == "Foreground")
            self._json(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _list(self, request: Request) -> None:
        store, query = self.api.store, request.query
        with store.changed:  # a watch goes on from the version: nothing may come between
            items = store.list(request.served, request.namespace, query.get("labelSelector", ""))
            version = store.version
        begin = int(query.get("continue") or 0)
        end = begin + min(self.api.page, int(query.get("limit") or 500))
        for item in items:  # items of a list do not say what they are
            del item["apiVersion"], item["kind"]
        meta = {"resourceVersion": str(version)} | ({"continue": str(end)} if end < len(items) else {})
        whole = {"kind": f"{request.served.kind}List", "apiVersion": request.served.api_version}
        self._json(200, {**whole, "metadata": meta, "items": items[begin:end]})

    # Streams.

    def _watch(self, request: Request) -> None:
        store, query = self.api.store, request.query
        version = int(query.get("resourceVersion") or 0)
        self._begin()
        if version < store.forgotten:
            gone = Refused(410, "Expired", f"too old resource version: {version} ({store.forgotten})")
            self._line({"type": "ERROR", "object": gone.status()})
            self._end()
            return
        deadline = time.monotonic() + float(query.get("timeoutSeconds") or 60)
        while time.monotonic() < deadline and not self.api.closing:
            with store.changed:
                if version < store.forgotten:
                    break  # this watch is ended; the next one will be told
                fresh = [change for change in store.changes if change[0] > version]
                if not fresh:
                    store.changed.wait(0.2)
            for number, event, served, namespace, thing in fresh:
                version = number
                ours = (served.group, served.plural) == (request.served.group, request.served.plural)
                if ours and namespace == request.namespace and chosen(thing, query.get("labelSelector", "")):
                    self._line({"type": event, "object": thing})
            if fresh and query.get("allowWatchBookmarks") == "true":
                mark = {"kind": request.served.kind, "metadata": {"resourceVersion": str(version)}}
                self._line({"type": "BOOKMARK", "object": mark})
        self._end()

    def _log(self, request: Request) -> None:
        query = request.query
        pod = self.api.store.get(request.served, request.namespace, request.name).thing
        uid = pod["metadata"]["uid"]
        with self.api.said:
            runs = self.api.runs.get(uid) or []
        previous = query.get("previous") == "true"
        if len(runs) < (2 if previous else 1):
            raise Refused(
                400, "BadRequest", f'container "{query["container"]}" in pod "{request.name}" has no such run'
            )
        run = runs[-2] if previous else runs[-1]
        since = query.get("sinceTime", "")[:19]  # the kubelet gets whole seconds
        sent, follow = 0, query.get("follow") == "true"
        if "tailLines" in query:
            sent = max(0, len(run.lines) - int(query["tailLines"]))
        self._begin("text/plain")
        while True:
            with self.api.said:
                fresh = run.lines[sent:]
                over = run.over or self.api.closing or uid not in self._uids(request)
                if not fresh and follow and not over:
                    self.api.said.wait(0.1)
                    continue
            sent += len(fresh)
            for stamp, text in fresh:
                if stamp[:19] >= since:
                    self._chunk(
                        f"{stamp} {text}\n".encode() if query.get("timestamps") == "true" else f"{text}\n".encode()
                    )
            if not follow or over:
                break
        self._end()

    def _uids(self, request: Request) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.api.store.list(request.served, request.namespace)}

    def _exec(self, request: Request, many: dict[str, list[str]]) -> None:
        self.api.store.get(request.served, request.namespace, request.name)
        offered = [word.strip() for word in self.headers["Sec-WebSocket-Protocol"].split(",")]
        protocol = next(one for one in self.api.protocols if one in offered)
        self.send_response(101, "Switching Protocols")
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept(self.headers["Sec-WebSocket-Key"]))
        self.send_header("Sec-WebSocket-Protocol", protocol)
        self.end_headers()
        self.close_connection = True
        channels = Channels(self.rfile, self.wfile)
        if self.cut is not None:
            channels.send(1, b"begun\n")
            return
        tty, takes = request.query.get("tty") in ("True", "true"), request.query.get("stdin") in ("True", "true")
        execute(channels, many["command"], self.api.environment, tty, takes, protocol.startswith("v5"))

    # Answers.

    cut: int | None = None
    retry_after: int | None = None

    def _json(self, code: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.retry_after is not None:
            self.send_header("Retry-After", str(self.retry_after))
            self.retry_after = None
        self.end_headers()
        if self.cut is not None:
            data, self.cut, self.close_connection = data[: len(data) // 2], None, True
        self.wfile.write(data)

    def _begin(self, content: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", content)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _line(self, value: object) -> None:
        self._chunk(json.dumps(value).encode() + b"\n")

    def _chunk(self, data: bytes) -> None:
        if self.cut == 0:
            half = data[: len(data) // 2]
            self.wfile.write(f"{len(data):x}\r\n".encode() + half)
            self.wfile.flush()
            self.cut, self.close_connection = None, True
            self.connection.close()
            raise ConnectionError
        if self.cut is not None:
            self.cut -= 1
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
