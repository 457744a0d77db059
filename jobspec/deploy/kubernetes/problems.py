"""What the API server refuses, in words: what was asked, why not, and what to do about it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.kubernetes.kinds import JOB, MAIN, TRAINING_RUNTIME, Kind
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.records import dataclass

# What errors of an API server are called, by HTTP status; 0 where there was none, None for all others.
_CAUSES: tuple[tuple[str, int | None], ...] = (
    ("api-unreachable", 0),
    ("api-login", 401),
    ("right-missing", 403),
    ("api-conflict", 409),
    ("api-refused", None),
)


MAIN_OF_OPERATORS = (*(kind for kind in MAIN if kind is not JOB), TRAINING_RUNTIME)

# What a server says of a field that it does not know: of one that is applied, and of one that is created.
_UNKNOWN = re.compile(r"(\.\S+): field not declared in schema|unknown field \"([^\"]+)\"")
_OLDER = "the cluster, or its operator, is older than what jobctl writes for: `jobctl check` says what it needs"
# What the authorizer says; the verb is not always that of the call: a command in a pod may be `get` or `create`.
_VERB = re.compile(r" cannot ([a-z]+) resource\b")


def _code(status: int) -> str:
    codes = {number: code for code, number in _CAUSES}
    return codes.get(status) or codes[None]


class ConfigError(DeployError):
    """A cluster that cannot even be asked: the client, the kubeconfig or the context is missing."""


class Unreachable(HostError):
    """An API server that does not answer."""

    def __init__(self, server: str, message: str, hint: str | None = None) -> None:
        super().__init__(server, _code(0), message, hint)


class Cut(Unreachable):
    """A connection that broke while an answer came."""


class ApiError(HostError):
    """What the API server answered instead of doing what was asked. `status` is HTTP's, `reason` Kubernetes' word."""

    def __init__(
        self, server: str, status: int, reason: str, message: str, hint: str | None, details: Mapping[str, Any]
    ) -> None:
        super().__init__(server, _code(status), message, hint)
        self.status, self.reason, self.details = status, reason, details

    def about(self, tried: str, name: str) -> ApiError:
        """Return the same error about an object that was tried under another name."""
        message = self.cause.replace(tried, name)
        return ApiError(self.host, self.status, self.reason, message, self.hint, self.details)

    @property
    def is_another(self) -> bool:
        """Say whether the object that was meant is another by now, or has been changed."""
        named = [cause.get("field") for cause in self.details.get("causes") or ()]
        return self.status == 409 or (self.status == 422 and "metadata.uid" in named)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as rights are given for it: `get`, `list`, `watch`, `create`, `patch` or `delete` of a kind."""

    verb: str
    kind: Kind
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    @property
    def path(self) -> str:
        """The path of the request."""
        parts = [self.kind.root]
        if self.kind.namespaced and self.namespace:
            parts += ["namespaces", self.namespace]
        parts += [part for part in (self.kind.plural, self.name, self.subresource) if part]
        return "/".join(parts)

    @property
    def resource(self) -> str:
        """What rights are given for."""
        return f"{self.kind.resource}/{self.subresource}" if self.subresource else self.kind.resource

    def __str__(self) -> str:
        what = f"{self.kind.kind} {self.name}" if self.name else self.kind.plural
        inside = f" in namespace {self.namespace}" if self.kind.namespaced and self.namespace else ""
        return f"{self.verb} {what}{'/' + self.subresource if self.subresource else ''}{inside}"


def problem_of(call: Call, status: int, body: bytes, server: str) -> ApiError:
    """Return the error for an answer other than success (`Status` of the API's conventions)."""
    said = _status(body)
    reason, details = str(said.get("reason") or ""), said.get("details") or {}
    words = said.get("message") or body.decode("utf-8", "replace").strip()[:300] or f"HTTP status {status}"
    message, hint = _told(call, status, reason, str(words), details)
    return ApiError(server, status, reason, message, hint, details)


def _status(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _told(call: Call, status: int, reason: str, words: str, details: Mapping[str, Any]) -> tuple[str, str | None]:
    if status == 401:
        return (
            f"cannot {call}: not logged in",
            "log in again, or choose another `--context`: the credentials are refused",
        )
    if status == 403 and "exceeded quota" in words:
        return f"cannot {call}: {words}", "ask for a larger quota, or ask for less: `nodes`, `devices`, `resources`"
    asked = _VERB.search(words) if status == 403 else None  # a webhook that refuses says whatever it likes
    if asked is not None:
        return _no_right(replace(call, verb=asked[1]))
    if status == 404 and not details.get("name") and call.name is None:
        hint = (
            "install its operator, or choose another `kubernetes.operator`" if call.kind in MAIN_OF_OPERATORS else None
        )
        return f"cannot {call}: the cluster does not serve {call.kind.api_version} {call.kind.kind}", hint
    unknown = _UNKNOWN.search(words)
    if unknown is not None:
        field = (unknown[1] or unknown[2]).removeprefix(".")
        return (
            f"cannot {call}: the cluster knows no field `{field}` of {call.kind.api_version} {call.kind.kind}",
            _OLDER,
        )
    if status == 409 and reason == "Conflict" and call.verb == "patch":
        return (
            f"cannot {call}: {_conflicts(words, details)}",
            "`--take-over` takes these fields, if the object is yours",
        )
    if status == 422:
        return f"cannot {call}: {words}", None
    if status == 429:
        return f"cannot {call}: the server is overloaded, and stays so: {words}", "try again later"
    if status >= 500:
        return f"cannot {call}: the server fails: {words}", "try again; the API server's own log says more"
    return f"cannot {call}: {words}", None


def _no_right(call: Call) -> tuple[str, str]:
    plural = call.resource.split(".", 1)[0] if not call.subresource else f"{call.kind.plural}/{call.subresource}"
    role = f'apiGroups ["{call.kind.group}"], resources [{plural}], verbs [{call.verb}]'
    return f"no right to {call}", f"ask for a Role in that namespace with {role}"


def _conflicts(words: str, details: Mapping[str, Any]) -> str:
    """Say who else has set which fields (`FieldManagerConflict`)."""
    causes = [cause for cause in details.get("causes") or () if cause.get("reason") == "FieldManagerConflict"]
    if not causes:
        return words
    return "; ".join(f"{cause.get('field')}: {cause.get('message')}" for cause in causes)


# How websocket-client tells of an answer that is no websocket: its status, its headers, and its body.
_REFUSED = re.compile(r"Handshake status (\d+).*?-\+-\+-.*?-\+-\+- (.*)", re.S)


def refused_websocket(call: Call, words: str, server: str) -> DeployError:
    """Return the error for a request that got no websocket, by the client's words."""
    found = _REFUSED.search(words)
    if found is None:
        return Unreachable(server, f"cannot {call}: {words}")
    said = found.group(2)
    body = ast.literal_eval(said) if said[:2] in ("b'", 'b"') else said.encode()
    return problem_of(call, int(found.group(1)), body, server)
