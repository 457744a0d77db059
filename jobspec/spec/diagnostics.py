"""What is wrong with a file, as data (severity, code, place, hint) and as the text that people read.

Codes are stable: tools match on them. They are documented once, in `CODES` (checks/codes.py, docs/diagnostics.md).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from jobctl.jobspec.records import dataclass

Severity = Literal["error", "warning"]


class Span(NamedTuple):
    """A place in a file: lines and columns are 1-based, in characters, ends exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake and its remedy.

    `excerpt` is shown in place of the line that `span` is in: where no file holds that (`--set`), or its file's are secret.
    """

    severity: Severity
    code: str
    message: str
    span: Span
    hint: str | None = None
    excerpt: str | None = None

    def to_json(self) -> dict[str, str | int | None]:
        """Return the object that `validate -o json` prints; its keys are part of the contract."""
        span = self.span
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "file": span.file,
            "line": span.line,
            "column": span.column,
            "end_line": span.end_line,
            "end_column": span.end_column,
            "hint": self.hint,
        }


def in_order(diagnostics: Iterable[Diagnostic], files: Sequence[str] = ()) -> tuple[Diagnostic, ...]:
    """Return each diagnostic once, by file (in the order of `files`, others last), position and severity."""
    place = {file: number for number, file in enumerate(files)}
    unique = dict.fromkeys(diagnostics)
    return tuple(sorted(unique, key=lambda d: (place.get(d.span.file, len(place)), d.span[1:3], d.severity, d.code)))


def render_text(diagnostic: Diagnostic, source_lines: Sequence[str] = ()) -> str:
    """Return the diagnostic for people: message, place, the line with a caret below it, hint.

    `source_lines` are the lines of the file that the span is in; without them the line is left out.
    """
    span = diagnostic.span
    head = f"{diagnostic.severity}: {_shown(diagnostic.message)} [{diagnostic.code}]"
    lines = [head, f" --> {_shown(span.file)}:{span.line}:{span.column}"]
    source = diagnostic.excerpt
    if source is not None:
        (source,) = _hidden([source], [span._replace(line=1, end_line=1)]) if diagnostic.code in _HIDDEN else [source]
    elif 0 < span.line <= len(source_lines):
        source = source_lines[span.line - 1]
    if source is not None:
        lines += _excerpt(span, source)
    if diagnostic.hint:
        lines.append(f"hint: {_shown(diagnostic.hint)}")
    return "\n".join(lines)


# Diagnostics whose place is a secret: what they print may be kept in the log of a test server.
_HIDDEN = frozenset({"secret-in-spec", "unknown-secret"})


def without_secrets(
    lines: Sequence[str], diagnostics: Iterable[Diagnostic], file: str, places: Iterable[Span] = ()
) -> list[str]:
    """Return the lines of a file with `*` for each character of a secret that a diagnostic is about, or in `places`."""
    spans = [*places, *(one.span for one in diagnostics if one.code in _HIDDEN)]
    return _hidden(lines, [span for span in spans if span.file == file])


def _hidden(lines: Sequence[str], spans: Iterable[Span]) -> list[str]:
    found = list(lines)
    for span in spans:
        for number in range(span.line, min(span.end_line, len(found)) + 1):
            line = found[number - 1]
            start = span.column - 1 if number == span.line else 0
            end = span.end_column - 1 if number == span.end_line else len(line)
            found[number - 1] = line[:start] + "*" * (min(end, len(line)) - start) + line[end:]
    return found


# A line longer than this is cut around the caret; nobody reads 100,000 characters.
_WIDEST = 160


def _excerpt(span: Span, source: str) -> list[str]:
    start = min(span.column - 1, len(source))
    end = span.end_column - 1 if span.end_line == span.line else len(source)
    first = max(0, start - _WIDEST // 2) if len(source) > _WIDEST else 0
    source, start, end = source[first : first + _WIDEST], start - first, end - first
    before, marked = source[:start], source[start : max(end, start)]
    gutter = " " * len(str(span.line))
    carets = "^" * max(1, _width(_drawn(marked)))
    return [
        f"{gutter} |",
        f"{span.line} | {_drawn(source)}".rstrip(),
        f"{gutter} | {' ' * _width(_drawn(before))}{carets}",
    ]


def _drawn(text: str) -> str:
    """Return `text` as one line of a terminal: tabs as four blanks, control characters escaped."""
    return _shown(text.replace("\t", "    "))


def _shown(text: str) -> str:
    """Return `text` without characters that steer a terminal (a hostile file must not)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == " " else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _width(text: str) -> int:
    """Return how many columns of a terminal `text` takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Say whether one of `diagnostics` is more than a warning."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return which of `known` `word` may have been meant to be, None if none is near."""
    # difflib takes several milliseconds to import; only those pay who make mistakes.
    from difflib import get_close_matches

    choices = {name.lower().replace("-", "_"): name for name in known}
    found = get_close_matches(word[:64].lower().replace("-", "_"), choices, 1, 0.6)
    return choices[found[0]] if found else None


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the hint that names the one of `known` that `word` may have been meant to be, None if none is near."""
    near = nearest(word, known)
    return f"did you mean `{near}`?" if near else None
