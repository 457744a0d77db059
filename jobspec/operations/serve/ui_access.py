"""The right to use the page of `jobctl ui`: it has everybody who knows its token, which never travels.

The page has the token from the part of its address that browsers send to nobody (`#token=…`). Server and page prove to
each other that they know it: each signs what the other could not foresee (HMAC with SHA-256). So a program of somebody
else that listens on the port after the server has ended learns nothing that is of use to it, and no other page can use
what the browser knows: there is no cookie.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import field
from hashlib import sha256
from pathlib import Path

from jobctl.jobspec.deploy.model.untrusted import as_number, as_text
from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.records import dataclass

_SHORTEST = 32  # characters of a token


@dataclass(frozen=True, slots=True)
class PageAccess:
    """The token of a server, and the `nonce` by which this run of it is known from earlier ones."""

    token: str
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def proof(self, host: str, challenge: str) -> str:
        """Return what only somebody who knows the token can answer to a page's challenge. `host` is the page's address."""
        return self._sign("server", host, challenge)

    def signature(self, host: str, method: str, target: str, body: str = "") -> str:
        """Return what a page has to send with a request."""
        return self._sign("page", host, self.nonce, method, target, body)

    def is_signed(self, signature: str, host: str, method: str, target: str, body: str = "") -> bool:
        """Say whether a request comes from a page that knows the token."""
        return hmac.compare_digest(signature.encode(), self.signature(host, method, target, body).encode())

    def _sign(self, *parts: str) -> str:
        return hmac.new(self.token.encode(), "\n".join(parts).encode(), sha256).hexdigest()


class KeptAccess:
    """The token and the port of the last server, in a file that only its owner can read: the next server goes on with them."""

    def __init__(self, state: Path) -> None:
        self.path = state / "ui.json"

    def token(self, *, new: bool) -> str:
        """Return the kept token; another one if `new`, or if others could have read it."""
        kept = self._kept()
        token = as_text(kept.get("token")) or ""
        if new or len(token) < _SHORTEST:
            token = secrets.token_urlsafe(32)
        return token

    def port(self) -> int:
        """Return the port of the last server, 0 if there was none."""
        return as_number(self._kept().get("port")) or 0

    def keep(self, token: str, port: int) -> None:
        """Keep them for the next server. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self.path, {"token": token, "port": port}, 0o600)

    def _kept(self) -> Mapping[str, object]:
        try:
            stat = self.path.lstat()
        except OSError:
            return {}
        if stat.st_uid != os.getuid() or stat.st_mode & 0o077:
            return {}
        return read_json(self.path) or {}
