"""`${VAR}` of a variable that is a secret: its value becomes part of the spec, and so of all that is made of that."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.names import ENV_NAME
from jobctl.jobspec.spec.reading.source import Source, YamlNode
from jobctl.jobspec.spec.reading.variables import scalars

# `$$` is a dollar; `${NAME:+text}` has the text in it and not the value.
_REFERENCE = re.compile(rf"\$\$|\$({ENV_NAME})|\$\{{({ENV_NAME})(?!\w|:?\+)")


def check_secret_references(source: Source) -> Iterator[Diagnostic]:
    """Yield a warning for each; to be called before references are replaced."""
    secrets = dict(_variables(source.root.get("secrets") if source.root else None))
    met: set[int] = set()
    for where, node in scalars(source.root) if secrets else ():
        if where[0] == "secrets" or id(node) in met:  # an alias is met again
            continue
        met.add(id(node))
        for match in _REFERENCE.finditer(node.text):
            name = match[1] or match[2]
            if name in secrets:
                message = f"the value of the secret `{name}` becomes part of what is rendered, sent and shown"
                span = source.part_span(node, match[0], match.start())
                yield Diagnostic("warning", "secret-in-value", message, span, _hint(secrets[name], where[0]))


def _variables(entry: tuple[YamlNode, YamlNode] | None) -> Iterator[tuple[str, str]]:
    """Yield the variables that secrets are read from, with what processes call them."""
    for item in entry[1].items if entry else ():
        yield item.text, item.text
    for key, value in entry[1].entries if entry else ():
        told = value.get("env")
        if told is not None or value.get("file") is None:
            yield (told[1].text if told else key.text), key.text


def _hint(name: str, key: str | int) -> str:
    if key == "setup":
        return f"write `$${name}`: the shell in the container has it"
    return f"leave it out: each process has the variable `{name}`, which the script can read"
