"""The server of `jobctl ui`: one page, which needs a token."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.operations.errors import OperationError, Refused
from jobctl.jobspec.operations.inspect.http_server import PlainServer, QuietHandler
from jobctl.jobspec.operations.inspect.logs import Choice
from jobctl.views.ui_data import TAIL, UiData

_ASSETS = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
# What a log line holds can do nothing: no script but the page's own file, and no address but this server.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"


class UiServer(PlainServer):
    """Serves the page on loopback. Raises Refused for another address: the token would travel unencrypted."""

    def __init__(self, address: tuple[str, int], data: UiData, token: str | None = None) -> None:
        host = "127.0.0.1" if address[0] == "localhost" else address[0]
        if not _is_loopback(host):
            hint = "listen on 127.0.0.1, and forward the port from your own machine: `ssh -L 9187:127.0.0.1:9187 HOST`"
            raise Refused(f"`jobctl ui` listens on loopback only, not on {host}", hint)
        self.data, self.token = data, token or secrets.token_urlsafe(32)
        super().__init__((host, address[1]), _Handler)

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"{self.origin}/?token={quote(self.token)}"

    @property
    def cookie(self) -> str:
        """The name of the cookie: browsers keep one jar for all ports of an address."""
        return f"jobctl-ui-{self.server_address[1]}"

    def names(self) -> frozenset[str]:
        """Return what the header Host may say: with another name, DNS of somebody else points here."""
        port = self.server_address[1]
        return frozenset({self.origin.removeprefix("http://"), f"localhost:{port}"})


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(QuietHandler):
    server: UiServer

    def do_GET(self) -> None:
        """Answer with a part of the page, or with data."""
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if self.headers.get("Host") not in self.server.names():
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers to its own address only")
        elif url.path == "/" and self._is_token(query.get("token", "")):
            self._take_token()
        elif not self._is_token(self._cookie()):
            self._refuse(HTTPStatus.UNAUTHORIZED, "open the address that `jobctl ui` has printed: it has the token")
        elif url.path in _ASSETS:
            name, kind = _ASSETS[url.path]
            self._send(files("jobctl.templates").joinpath("ui", name).read_bytes(), kind)
        else:
            self._answer(url.path, query)

    def _take_token(self) -> None:
        """Move the token from the address, which histories keep, into a cookie that no script reads."""
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Set-Cookie", f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Location", "/")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.server.token.encode())

    def _answer(self, path: str, query: Mapping[str, str]) -> None:
        try:
            if path == "/report":
                html = self.server.data.report(query.get("job", ""))
                self._send(html.encode(), "text/html; charset=utf-8", policy=_REPORT_POLICY)
                return
            found = self._data(path, query)
        except (OperationError, DeployError, OSError, ValueError) as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
        else:
            self._send(json.dumps(found).encode(), "application/json")

    def _data(self, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        data, job = self.server.data, query.get("job", "")
        if path == "/api/jobs":
            return data.jobs()
        if path == "/api/job":
            return data.job(job)
        if path == "/api/logs":
            choice = Choice(_number(query, "node"), _number(query, "rank"), tail=TAIL)
            return data.logs(job, choice, query.get("text", ""))
        return None

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(json.dumps({"error": why}).encode(), "application/json", status=status)

    def _send(self, body: bytes, kind: str, *, status: HTTPStatus = HTTPStatus.OK, policy: str = _POLICY) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)


def _number(query: Mapping[str, str], key: str) -> int | None:
    text = query.get(key, "")
    return int(text) if text else None
