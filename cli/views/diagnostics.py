"""Diagnostics of specs and hosts files, with source lines and carets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl import console

if TYPE_CHECKING:
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.reading.source import Source


def show_diagnostics(diagnostics: Sequence[Diagnostic], source: Source, stream: Any = None) -> None:
    """Print diagnostics with source lines and carets, on stderr unless told otherwise."""
    from jobctl.jobspec.spec.diagnostics import render_text, without_secrets
    from jobctl.jobspec.spec.reading.secret_places import secret_places

    places = secret_places(source.root)
    lines: dict[str, list[str]] = {}
    for diagnostic in diagnostics:
        file = diagnostic.span.file
        if file not in lines:
            lines[file] = without_secrets(source_lines(file, source), diagnostics, file, places)
        console.write(_coloured(render_text(diagnostic, lines[file]), stream) + "\n", stream)


def _coloured(text: str, stream: Any) -> str:
    """Colour the words `error`, `warning` and `hint` at the beginning of lines, and the carets."""
    head, *rest = text.split("\n")
    word, colon, message = head.partition(":")
    lines = [console.style(word, "red" if word == "error" else "yellow", stream) + colon + message]
    for line in rest:
        if line.startswith("hint:"):
            line = console.style("hint", "cyan", stream) + line[4:]
        elif line.endswith("^") and line.lstrip().startswith("|"):
            before = line.rstrip("^")
            line = before + console.style(line[len(before) :], "bold", stream)
        lines.append(line)
    return "\n".join(lines)


def source_lines(file: str, source: Source) -> list[str]:
    """Return the lines of a file that a diagnostic points into; none if it cannot be read as text."""
    from jobctl.jobspec.spec.reading.source import MAX_BYTES, split_lines

    lines = source.lines(file)
    if lines is not None:
        return lines
    try:
        with Path(file).open("rb") as opened:
            return split_lines(opened.read(MAX_BYTES).decode("utf-8-sig", "replace"))
    except OSError:
        return []
