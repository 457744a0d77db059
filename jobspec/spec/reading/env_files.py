"""Files of variables, `.env` beside the spec and those of `env_file`, read as Compose reads them.

What they hold may be secret: no message quotes a value, as it may be kept in the log of a test server. The text of
`${NAME:?text}` is written for people, and shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.diagnostics import Diagnostic, Span
from jobctl.jobspec.spec.names import ENV_NAME
from jobctl.jobspec.spec.reading.interpolate import BadInterpolation, interpolate
from jobctl.jobspec.spec.reading.source import BadSource, folder_of, read_text

if TYPE_CHECKING:
    from dotenv.parser import Binding

# Compose takes `NAME: value` too.
_COLON = re.compile(rf"\s*(?:export\s+)?({ENV_NAME})[^\S\n]*:(.*)", re.DOTALL)
_QUOTE = re.compile(r"[^=]*=\s*(['\"])")
_HIDDEN = "…"  # in place of a line
_LITERAL = "write it in single quotes, or `$$` for a dollar"


def dot_env(folder: Path, environ: Mapping[str, str]) -> tuple[dict[str, str], list[Diagnostic]]:
    """Return the variables of `.env` in the folder of the spec (none without that file), and what is wrong with it.

    A folder of that name, such as a virtual environment, is no mistake, as for Compose.
    """
    path = folder / ".env"
    return read_env_file(path, environ) if path.exists() and not path.is_dir() else ({}, [])


def env_file_path(spec: Path, name: str) -> Path:
    """Return where a file is that the spec calls `name`: relative to the same folder as the path of the spec."""
    return folder_of(spec) / os.path.expanduser(name)


def missing_env_file(directory: Path, name: str) -> str | None:
    """Return why a file that `env_file` names cannot be read, relative to `directory`; None for one that is there."""
    path = directory / os.path.expanduser(name)
    if os.path.isfile(path):
        return None
    return f"`{name}` is a folder, not a file" if os.path.isdir(path) else f"there is no file `{name}`"


def read_env_file(path: Path, environ: Mapping[str, str]) -> tuple[dict[str, str], list[Diagnostic]]:
    """Return the variables in a file, and what is wrong with it.

    References in values come from `environ`, or if it has none from lines above. A name alone takes its value from `environ`.
    """
    from io import StringIO

    from dotenv.parser import parse_stream

    try:
        text = read_text(path, str(path))
    except BadSource as bad:
        return {}, [replace(diagnostic, excerpt=_HIDDEN) for diagnostic in bad.diagnostics]
    found = _EnvFile(str(path), environ)
    for binding in parse_stream(StringIO(text)):
        found.take(binding)
    return found.values, found.diagnostics


@dataclass
class _EnvFile:
    name: str
    environ: Mapping[str, str]
    values: dict[str, str] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def take(self, binding: Binding) -> None:
        """Take what one line says, or several if they are one value."""
        text = binding.original.string
        line = binding.original.line + len(text) - len(text.lstrip("\n"))  # lines without text belong to the next one
        binding = _with_colon(binding) if binding.error else binding
        if binding.error:
            self._tell(
                Diagnostic("warning", "bad-env-line", "this is no `NAME=value`", self._span(line), "it is skipped")
            )
        elif binding.key is not None and binding.value is None:
            self.values.update({binding.key: self.environ[binding.key]} if binding.key in self.environ else {})
        elif binding.key is not None:
            self.values[binding.key] = self._filled(binding, line)

    def _filled(self, binding: Binding, line: int) -> str:
        """Return a value with its references replaced, except in single quotes."""
        value, quote = binding.value or "", _QUOTE.match(binding.original.string)
        if quote is not None and quote[1] == "'":
            return value
        text = value.replace("\\$", "$$") if quote is not None else value
        try:
            return interpolate(text, {**self.values, **self.environ}, lambda *_: self._unset(binding, line))
        except BadInterpolation as bad:
            span = self._span(line)
            if bad.code == "required-variable":
                self._tell(Diagnostic("error", bad.code, bad.message, span, bad.hint), binding)
            else:
                message = "a `$` in it refers to no variable: the value stays as it is"
                self._tell(Diagnostic("warning", "bad-env-line", message, span, _LITERAL), binding)
            return value

    def _unset(self, binding: Binding, line: int) -> None:
        message = f"`{binding.key}` refers to a variable that is not set: it becomes empty"
        self._tell(Diagnostic("warning", "unset-variable", message, self._span(line), _LITERAL), binding)

    def _tell(self, diagnostic: Diagnostic, binding: Binding | None = None) -> None:
        """Take note of what is wrong with a line, of which only the name is shown."""
        shown = _HIDDEN if binding is None else f"{binding.key}={_HIDDEN}"
        self.diagnostics.append(replace(diagnostic, excerpt=shown))

    def _span(self, line: int) -> Span:
        return Span(self.name, line, 1, line, 2)


def _with_colon(binding: Binding) -> Binding:
    """Return a line that is no `NAME=value` as if its colon were `=`, if it has one after a name."""
    from io import StringIO

    from dotenv.parser import parse_stream

    found = _COLON.match(binding.original.string)
    return binding if found is None else next(parse_stream(StringIO(f"{found[1]}={found[2]}")))
