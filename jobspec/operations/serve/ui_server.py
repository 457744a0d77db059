"""The server of `jobctl ui`: one page for everybody on this machine, and data for pages that have the token."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.untrusted import as_text, number_in, parse_object
from jobctl.jobspec.operations.errors import NotYours, OperationError, Refused
from jobctl.jobspec.operations.inspect.logs import Choice
from jobctl.jobspec.operations.serve.http_server import PlainServer, QuietHandler, is_loopback
from jobctl.jobspec.operations.serve.ui_access import PageAccess
from jobctl.jobspec.operations.serve.ui_actions import PageActions, Wish
from jobctl.jobspec.operations.serve.ui_data import UiData, known_directory
from jobctl.jobspec.records import dataclass

_KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_ASSETS = ("page.css", "page.js", "access.js", "actions.js", "draw.js")
# What a log line holds can do nothing: no script but the page's own files, and no address but this server.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
MAX_REQUEST_BYTES = 4096  # bytes of what a page may send
TICKETS, TICKET_LIFE = 100, 30.0  # tickets that are known at a time, and seconds for which one counts


class UiServer(PlainServer):
    """Serves the page on loopback. Raises Refused for another address: what it shows would travel unencrypted."""

    def __init__(
        self, address: tuple[str, int], data: UiData, access: PageAccess, actions: PageActions | None = None
    ) -> None:
        host = "127.0.0.1" if address[0] == "localhost" else address[0]
        if not is_loopback(host):
            hint = "listen on 127.0.0.1, and forward the port from your own machine: `ssh -L 9187:127.0.0.1:9187 HOST`"
            raise Refused(f"`jobctl ui` listens on loopback only, not on {host}", hint)
        self.data, self.access, self.actions, self.tickets = data, access, actions, Tickets()
        super().__init__((host, address[1]), _Handler)

    @property
    def url(self) -> str:
        """The address to open. Browsers send nobody what follows the `#`."""
        return f"{self.origin}/#token={quote(self.access.token)}"

    def close(self) -> None:
        """Listen no longer, and let go of all connections."""
        self.server_close()
        self.data.close()


class Tickets:
    """Words that open one report once: a frame cannot sign its request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._jobs: dict[str, tuple[float, str]] = {}

    def issue(self, job: str) -> str:
        """Return a ticket for the report of a job."""
        with self._lock:
            while len(self._jobs) >= TICKETS:
                del self._jobs[next(iter(self._jobs))]
            ticket = secrets.token_urlsafe(24)
            self._jobs[ticket] = self._clock() + TICKET_LIFE, job
            return ticket

    def take(self, ticket: str) -> str | None:
        """Return the job of a ticket, None if it does not count or no longer counts."""
        with self._lock:
            until, job = self._jobs.pop(ticket, (float("-inf"), ""))
            return job if self._clock() < until else None


class NotAllowed(Refused):
    """The server was started to look only."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that counts: its path, the values of its query, and the object that it brought."""

    path: str
    query: Mapping[str, str]
    body: Mapping[str, object]

    def number(self, key: str) -> int | None:
        """Return a number of the query. Raises Refused for other words."""
        text = self.query.get(key, "")
        found = number_in(text)
        if text and found is None:
            raise Refused(f"`{text}` is no {key}", "write a number")
        return found


class _Handler(QuietHandler):
    server: UiServer

    def do_GET(self) -> None:
        """Answer with a part of the page, or with data."""
        url = urlsplit(self.path)
        query = _values(url.query)
        if not self._is_ours():
            return
        if url.path in ("/", *(f"/{name}" for name in _ASSETS)):
            name = url.path[1:] or "page.html"
            body = files("jobctl.templates").joinpath("ui", name).read_bytes()
            self._send(body, _KINDS[name.rpartition(".")[2]])
        elif url.path == "/api/hello":
            proof = self.server.access.proof(self.headers["Host"], query.get("challenge", "")[:64])
            self._send_json({"nonce": self.server.access.nonce, "proof": proof})
        elif url.path == "/report":
            self._answer(lambda: self._report(query.get("ticket", "")))
        elif self._is_signed(""):
            self._answer(lambda: self._look(_Request(url.path, query, {})))

    def do_POST(self) -> None:
        """Do what a button of the page says."""
        length = number_in(self.headers.get("Content-Length", "0"))
        if not self._is_ours():
            return
        if length is None or length > MAX_REQUEST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a page sends less than that")
            return
        text = self.rfile.read(length).decode(errors="replace")
        if not self._is_signed(text):
            return
        if self.headers.get("Origin") not in {f"http://{name}" for name in self.server.names()}:
            self._refuse(HTTPStatus.FORBIDDEN, "only the page of this server changes jobs")
        elif self.headers.get("Content-Type") != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the page sends JSON")
        else:
            self._answer(
                lambda: self._change(_Request(urlsplit(self.path).path, {}, parse_object(text.encode()) or {}))
            )

    def _is_ours(self) -> bool:
        """Say whether the request names this server; answer it otherwise."""
        if self.headers.get("Host") in self.server.names():
            return True
        self._refuse(HTTPStatus.FORBIDDEN, "this server answers to its own address only")
        return False

    def _is_signed(self, body: str) -> bool:
        """Say whether the request comes from a page that knows the token; answer it otherwise."""
        signature = self.headers.get("X-Jobctl-Signature", "")
        if self.server.access.is_signed(signature, self.headers["Host"], self.command, self.path, body):
            return True
        self._refuse(HTTPStatus.UNAUTHORIZED, "open the address that `jobctl ui` has printed: it has the token")
        return False

    def _answer(self, make: Callable[[], bytes | dict[str, Any] | None]) -> None:
        try:
            made = make()
        except NotAllowed as error:
            self._refuse(HTTPStatus.FORBIDDEN, _words(error))
        except NotYours as error:
            self._refuse(HTTPStatus.CONFLICT, _words(error))
        except (OperationError, DeployError) as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, _words(error))
        except (OSError, ValueError) as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        else:
            if made is None:
                self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            elif isinstance(made, bytes):
                self._send(made, _KINDS["html"], policy=_REPORT_POLICY)
            else:
                self._send_json(made)

    def _report(self, ticket: str) -> bytes | None:
        job = self.server.tickets.take(ticket)
        return None if job is None else self.server.data.report(job).encode(errors="replace")

    def _look(self, asked: _Request) -> dict[str, Any] | None:
        data, actions, job = self.server.data, self.server.actions, asked.query.get("job", "")
        if asked.path == "/api/jobs":
            return {**data.jobs(), "actions": actions is not None}
        if asked.path == "/api/job":
            found = data.job(job, asked.number("since") or 0, asked.query.get("story", ""))
            return {**found, "actions": actions.of(job) if actions else []}
        if asked.path == "/api/logs":
            choice = Choice(asked.number("node"), asked.number("rank"))
            return data.logs(job, choice, asked.query.get("text", ""), asked.query.get("since", ""))
        if asked.path == "/api/ticket":
            return {"ticket": self.server.tickets.issue(known_directory(job).name)}
        if asked.path == "/api/ask":
            return {"words": self._allowed().ask(_wish(asked.query))}
        return None

    def _change(self, asked: _Request) -> dict[str, Any] | None:
        actions = self._allowed()
        if asked.path != "/api/act":
            return None
        return actions.begin(_wish(asked.body)).to_json()

    def _allowed(self) -> PageActions:
        """Return what does things. Raises NotAllowed where the user wants a page that only looks."""
        if self.server.actions is None:
            raise NotAllowed("this page only looks", "start it with `jobctl ui --allow-actions`")
        return self.server.actions

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(json.dumps({"error": why}).encode(), "application/json", status=status)

    def _send_json(self, value: object) -> None:
        self._send(json.dumps(value).encode(), "application/json")

    def _send(self, body: bytes, kind: str, *, status: HTTPStatus = HTTPStatus.OK, policy: str = _POLICY) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.write_body(body)


def _values(query: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(query).items()}


def _words(error: OperationError | DeployError) -> str:
    return ": ".join(filter(None, [error.message, error.hint]))


def _wish(asked: Mapping[str, object]) -> Wish:
    """Return what somebody wants to be done. Raises Refused for a job that is not known here."""
    directory = known_directory(as_text(asked.get("job")) or "")
    node, victim = as_text(asked.get("node")), as_text(asked.get("victim"))
    return Wish(directory, as_text(asked.get("action")) or "", node or None, victim or "process")
