"""The connections of `ApiServer`: each request fails as told, is answered as a kubelet would, or is passed on to the cluster."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.kube.backend import REVIEWS, Answer, Asked
from tests.kube.store import Refused
from tests.kube.websocket import Channels, accept, execute, forward

if TYPE_CHECKING:
    from tests.kube.server import ApiServer

TOKEN = "let-me-in"
_CREATE, _MERGE, _APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
_WORDS = {403: "Forbidden", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


class Threads(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is written in two parts: each would wait 40 ms for its acknowledgement
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
        asked = Asked(method, url.path, query, body, self.headers.get("Content-Type") or _CREATE, self.api.user)
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Unauthorized", "Unauthorized")
            self._fail_as_told(asked)
            if (review := self._allow(asked)) is not None:
                self._json(review.status, review.value)
            elif asked.sub == "log":
                self._log(asked)
            elif asked.sub == "exec":
                self._exec(asked, many)
            elif asked.sub == "portforward":
                self._forward(asked)
            else:
                self._pass_on(asked)
        except Refused as refused:
            self._json(refused.code, refused.status())
        except (BrokenPipeError, ConnectionError, ssl.SSLError):
            self.close_connection = True

    def _fail_as_told(self, asked: Asked) -> None:
        fault = self.api.fault_of(asked)
        if fault is None:
            return
        if fault.kind == "drop":
            self.close_connection = True
            raise ConnectionError
        if fault.kind == "expired":
            self._begin()
            gone = Refused(410, "Expired", "too old resource version: 1 (2)")
            self._line(json.dumps({"type": "ERROR", "object": gone.status()}).encode())
            self._end()
            raise ConnectionError
        if fault.kind == "cut":
            self.cut = fault.after
        elif fault.kind == "slow":
            self.gate = fault.gate
        else:
            self.retry_after = fault.retry_after
            code = int(fault.kind)
            raise Refused(code, _WORDS.get(code, "Unknown"), fault.words or f"told to fail with {code}")

    def _allow(self, asked: Asked) -> Answer | None:
        """Refuse what is denied; return what is said to one who asks whether it is, None to leave that to the cluster."""
        if asked.path == REVIEWS and self.api.denied:
            wanted = asked.body["spec"]["resourceAttributes"]
            resource = wanted["resource"] + (f"/{wanted['subresource']}" if wanted.get("subresource") else "")
            if (wanted["verb"], resource) in self.api.denied:
                return Answer(201, {**asked.body, "status": {"allowed": False}})
        if (asked.verb, asked.resource) in self.api.denied:
            inside = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
            kind = f"{asked.plural}.{asked.group}" if asked.group else asked.plural
            which = f'{kind} "{asked.name}"' if asked.name else kind
            cannot = f'cannot {asked.verb} resource "{asked.resource}" in API group "{asked.group}"{inside}'
            message = f'{which} is forbidden: User "me" {cannot}'
            raise Refused(403, "Forbidden", message, {"kind": asked.plural, "group": asked.group, "name": asked.name})
        return None

    def _pass_on(self, asked: Asked) -> None:
        """Answer as the cluster does, once controllers have heard of it."""
        answer = self.api.backend.answer(asked)
        if answer.lines is not None:
            self._begin()
            for line in answer.lines:
                self._line(line)
            self._end()
            return
        self._tell_controllers(asked, answer)
        if self.gate is not None:
            self.gate.wait()
            self.gate = None
        self._json(answer.status, answer.value)

    def _tell_controllers(self, asked: Asked, answer: Answer) -> None:
        if asked.verb != "patch" or answer.status not in (200, 201) or "dryRun" in asked.query:
            return
        is_new = asked.content == _APPLY and answer.status == 201
        told = self.api.made if is_new else self.api.altered if asked.content == _MERGE else []
        for controller in told:
            controller(answer.value)

    # What kubelets do.

    def _log(self, asked: Asked) -> None:
        query = asked.query
        uid = self.api.get("Pod", asked.name)["metadata"]["uid"]
        with self.api.said:
            runs = self.api.runs.get(uid) or []
        previous = query.get("previous") == "true"
        if len(runs) < (2 if previous else 1):
            raise Refused(400, "BadRequest", f'container "{query["container"]}" in pod "{asked.name}" has no such run')
        run = runs[-2] if previous else runs[-1]
        since = query.get("sinceTime", "")[:19]  # the kubelet gets whole seconds
        sent, follow = 0, query.get("follow") == "true"
        if "tailLines" in query:
            sent = max(0, len(run.lines) - int(query["tailLines"]))
        self._begin("text/plain")
        while True:
            gone = follow and not self._is_there(asked.name, uid)
            with self.api.said:
                fresh = run.lines[sent:]
                over = run.over or self.api.closing or gone
                if not fresh and follow and not over:
                    self.api.said.wait(0.1)
                    continue
            sent += len(fresh)
            for stamp, text in fresh:
                if stamp[:19] >= since:
                    line = f"{stamp} {text}\n" if query.get("timestamps") == "true" else f"{text}\n"
                    self._chunk(line.encode())
            if not follow or over:
                break
        self._end()

    def _is_there(self, name: str, uid: str) -> bool:
        try:
            return bool(self.api.get("Pod", name)["metadata"]["uid"] == uid)
        except Refused:
            return False

    def _exec(self, asked: Asked, many: dict[str, list[str]]) -> None:
        self.api.get("Pod", asked.name)
        channels, protocol = self._upgrade()
        if self.cut is not None:
            channels.send(1, b"begun\n")
            return
        tty, takes = (asked.query.get(name) in ("True", "true") for name in ("tty", "stdin"))
        execute(channels, many["command"], self.api.environment, tty, takes, protocol.startswith("v5"))

    def _forward(self, asked: Asked) -> None:
        """Connect to a port of this machine, which plays the pod."""
        self.api.get("Pod", asked.name)
        channels, _ = self._upgrade()
        forward(channels, int(asked.query["ports"]))

    def _upgrade(self) -> tuple[Channels, str]:
        """Make a websocket of the connection; return it with its protocol."""
        offered = [word.strip() for word in self.headers["Sec-WebSocket-Protocol"].split(",")]
        protocol = next(one for one in self.api.protocols if one in offered)
        self.send_response(101, "Switching Protocols")
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept(self.headers["Sec-WebSocket-Key"]))
        self.send_header("Sec-WebSocket-Protocol", protocol)
        self.end_headers()
        self.close_connection = True
        return Channels(self.rfile, self.wfile), protocol

    # Answers.

    cut: int | None = None
    gate: threading.Event | None = None
    retry_after: int | None = None

    def _json(self, code: int, value: object) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
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

    def _line(self, line: bytes) -> None:
        self._chunk(line + b"\n")

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
