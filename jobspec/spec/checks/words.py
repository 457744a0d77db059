"""Words of a command that are several words, and commands that start what jobctl starts itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import basename

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.frameworks import FRAMEWORKS
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source

_OPTION_AND_VALUE = re.compile(r"--?[A-Za-z][\w-]*\s+\S")
_LAUNCHERS = frozenset(name for traits in FRAMEWORKS.values() for name in traits.launchers)


def check_words(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield a warning for each word of `command` or `args` that is probably several, and for a launcher in `command`."""
    command, key = tuple(spec.command or ()), "command" if spec.command else "args"
    for number, word in enumerate(command or spec.args):
        if _OPTION_AND_VALUE.match(word) or (command and number == 0 and len(word.split()) > 1):
            first = word.split()[0]  # alone: what follows may be a secret
            message, hint = f"`{first} …` is one word, with spaces in it", f"write each word as an item: `[{first}, …]`"
            yield Diagnostic("warning", "one-word", message, source.value_span((key, number)), hint)
    launcher = _launcher(command)
    if launcher is not None and spec.per == "process":
        message = f"each process would start `{launcher}`, and not the script"
        hint = f"jobctl starts it itself: write `script: …`; `jobctl import -- {launcher} …` does that for you"
        yield Diagnostic("warning", "launcher-in-command", message, source.value_span(("command",)), hint)


def _launcher(command: tuple[str, ...]) -> str | None:
    """Return the launcher that a command begins with, None for any other command."""
    if command and basename(command[0]) in _LAUNCHERS:
        return basename(command[0])
    if (
        len(command) > 2
        and basename(command[0]).startswith("python")
        and command[1] == "-m"
        and command[2] in _LAUNCHERS
    ):
        return f"python -m {command[2]}"
    return None
