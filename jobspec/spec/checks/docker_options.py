"""Options of `docker run` in `container.options` that would undo what jobctl sets itself."""

from __future__ import annotations

from collections.abc import Iterator

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source

# Its network is always the host's; the others say which container it is, and how it is started, again too.
_OURS = frozenset(
    ("--network", "--net", "--name", "--hostname", "-h", "--entrypoint", "--restart", "--rm", "--init", "--cidfile")
    + ("--detach", "-d", "--interactive", "-i", "--tty", "-t", "-it", "-ti")
)


def check_docker_options(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield an error for each option that jobctl sets itself, and for each word that belongs to no option."""
    takes = False  # whether the word may be the value of the option before it
    for number, word in enumerate(spec.container.options):
        name, equals, _ = word.partition("=")
        span = source.value_span(("container", "options", number))
        if name in _OURS:
            yield Diagnostic("error", "container-option", f"jobctl sets `{name}` itself", span, "leave it out")
        elif word.startswith("-") and " " in name:
            first = name.split()[0]  # alone: what follows may be a secret
            message, hint = f"`{first} …` is one word, and no option", f"write each word as an item: `[{first}, …]`"
            yield Diagnostic("error", "container-option", message, span, hint)
        elif not word.startswith("-") and not takes:
            message = f"`{word}` is no option: `docker run` would take it for the image"
            yield Diagnostic("error", "container-option", message, span, "an option begins with `-`")
        takes = word.startswith("-") and not equals
