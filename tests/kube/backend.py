"""What stands behind `ApiServer`: the fake cluster of this project, or a real API server. They differ as `CAPABILITIES` says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.kube.store import Object, Refused, Served

# What a test may need (`pytest.mark.needs`), and which server has it. What is not here, all three do alike: test_contract.py.
CAPABILITIES = {
    "jobs": ("fake", "mini"),  # Jobs as we render them: 1.20 knows neither an index, nor a switch that ends the pods
    "reviews": ("fake", "full"),  # authorization.k8s.io: the server says who may do what
    "rbac": ("full",),  # roles are real: who has no right is refused
    "collector": ("fake", "full"),  # somebody removes what hangs on an object that was deleted in the foreground
    "no-collector": ("mini",),
    "schemas": ("mini", "full"),  # what is applied and unknown is refused
    "strict": ("mini",),  # and so is what is created and unknown, where `fieldValidation=Strict` asks for that
    "rules": ("full",),  # fields of built-in kinds are checked and filled in
    "cel": ("mini",),  # rules in CRDs are checked
}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SERVERS = ("fake", "mini", "full")

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


@dataclass
class Asked:
    """One request, as rights are given for it. `path` and `query` are as they came; discovery has no `plural`."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: Object = field(default_factory=dict)
    content: str = "application/json"
    user: str | None = None  # in whose name, None for one who may do anything

    def __post_init__(self) -> None:
        found = _PATH.fullmatch(self.path)
        parts = found.groupdict() if found else {}
        self.group, self.version = parts.get("group") or "", parts.get("version") or ""
        self.namespace, self.plural = parts.get("namespace") or "", parts.get("plural") or ""
        self.name, self.sub = parts.get("name") or "", parts.get("sub") or ""
        reading = "watch" if self.query.get("watch") == "true" else "get" if self.name else "list"
        self.verb = _VERBS.get(self.method, reading)

    @property
    def resource(self) -> str:
        return f"{self.plural}/{self.sub}" if self.sub else self.plural


@dataclass
class Answer:
    """What is answered: a value, or the lines of a stream as they come."""

    status: int
    value: Any = None
    lines: Iterator[bytes] | None = None


class Backend(Protocol):
    """One cluster, as one test sees it. `namespace` is the test's own."""

    which: str
    namespace: str

    @property
    def served(self) -> Sequence[Served]:
        """The kinds that tests look at."""

    def make_namespace(self, name: str) -> None:
        """Make a namespace beside the test's own."""

    def answer(self, asked: Asked) -> Answer:
        """Answer a request. Raises Refused."""

    def find(self, kind: str, group: str | None = None) -> Served:
        """Return how a kind is served."""

    def close(self) -> None:
        """End all streams, and leave nothing behind."""


def path_of(served: Served, namespace: str, name: str = "", sub: str = "") -> str:
    """Return where an object is."""
    root = f"/apis/{served.api_version}" if served.group else f"/api/{served.version}"
    inside = ["namespaces", namespace] if served.namespaced and namespace else []
    return "/".join([root, *inside, *(part for part in (served.plural, name, sub) if part)])


def refusal(status: int, value: Any) -> Refused:
    """Return what an answer says that is none of success."""
    said = value if isinstance(value, dict) else {"message": str(value)}
    return Refused(status, said.get("reason") or "", said.get("message") or "", said.get("details"))
