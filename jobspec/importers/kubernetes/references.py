"""`$(VAR)` in a manifest: Kubernetes puts the value of a variable of the container there."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobctl.jobspec.importers.kubernetes.document import Document
from jobctl.jobspec.importers.names import is_secret
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.names import ENV_NAME

_PART = re.compile(r"\$\$|\$\(([^)]*)\)")
_CLUSTER, _SECRET = "is not known here", "may be a secret"


@dataclass(frozen=True, slots=True)
class Filled:
    """A text as Kubernetes makes it. References to variables of `left` stay in it: what is wrong with their values."""

    text: str
    left: Mapping[str, str]


class References:
    """The variables of a container; `values` are those of `env`, in order. Those of `envFrom` are in the cluster."""

    def __init__(self, container: Document) -> None:
        self._texts: dict[str, str] = {}
        self._hidden: dict[str, str] = {}
        self._others = bool(container.raw.get("envFrom"))
        self.values = tuple(map(self._add, container.raw.get("env") or ()))

    def _add(self, variable: Mapping[str, object]) -> Filled:
        """Add a variable, and return its value, which may refer to those before it."""
        name, filled = str(variable["name"]), self.fill_in(variable.get("value") or "")
        for known in (self._texts, self._hidden):
            known.pop(name, None)
        if variable.get("valueFrom") or filled.left:
            self._hidden[name] = next(iter(filled.left.values()), _CLUSTER)
        elif is_secret(name, filled.text):
            self._hidden[name] = _SECRET
        else:
            self._texts[name] = filled.text
        return filled

    def fill_in(self, value: object) -> Filled:
        """Return a text with what it refers to. What no variable is called stays as it is, as in a pod."""
        left: dict[str, str] = {}

        def text(match: re.Match[str]) -> str:
            name = match[1]
            if name is None:
                return "$"
            if name in self._texts:
                return self._texts[name]
            if name in self._hidden or (self._others and re.fullmatch(ENV_NAME, name)):
                left[name] = self._hidden.get(name, _CLUSTER)
            return match[0]

        return Filled(_PART.sub(text, str(value)), left)
