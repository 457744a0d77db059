"""What the page of `jobctl ui` does to be answered, for tests that ask its server themselves."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

Answer = tuple[int, dict[str, str], bytes]


class UiClient:
    """Asks a server, and signs what it sends once it has met it. `url` is what `jobctl ui` prints."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.netloc, self.token = parts.netloc, parse_qs(parts.fragment)["token"][0]
        self.nonce = ""

    def mac(self, *parts: str) -> str:
        """Return a signature."""
        return hmac.new(self.token.encode(), "\n".join(parts).encode(), hashlib.sha256).hexdigest()

    def meet(self) -> None:
        """Learn by which name this run of the server goes; it has to show that it knows the token."""
        said = json.loads(self.send("GET", "/api/hello?challenge=c4")[2])
        assert said["proof"] == self.mac("server", self.netloc, "c4")
        self.nonce = said["nonce"]

    def send(self, method: str, target: str, body: str = "", **headers: str) -> Answer:
        """Send a request with these headers, and return status, headers and body of the answer."""
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, target, body or None, headers=sent)
        answer = connection.getresponse()
        found = answer.status, dict(answer.headers.items()), answer.read()
        connection.close()
        return found

    def signed(self, method: str, target: str, body: str = "", **headers: str) -> Answer:
        """Send a request as the page does; `headers` replace its own."""
        signature = self.mac("page", self.netloc, self.nonce, method, target, body)
        own = {"X_Jobctl_Signature": signature}
        if method == "POST":
            own |= {"Origin": f"http://{self.netloc}", "Content_Type": "application/json"}
        return self.send(method, target, body, **{**own, **headers})

    def data(self, path: str, **query: str) -> Any:
        """Return what the server tells."""
        status, _, body = self.signed("GET", f"{path}?{urlencode(query)}")
        assert status == 200, body
        return json.loads(body)

    def act(self, job: str, action: str, headers: dict[str, str] | None = None, **more: str) -> tuple[int, Any]:
        """Press a button; return the status and what the server says to it."""
        body = json.dumps({"job": job, "action": action, **more})
        status, _, answer = self.signed("POST", "/api/act", body, **(headers or {}))
        return status, json.loads(answer)
