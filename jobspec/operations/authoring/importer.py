"""A spec made from a launch command, a script or a manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from jobctl.jobspec.importers.draft import Found, ImportProblem
from jobctl.jobspec.importers.jobs import ImportContext, import_command, import_text, references
from jobctl.jobspec.importers.write import hosts_text, spec_text
from jobctl.jobspec.operations.authoring.starter import write_new
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.frameworks import FRAMEWORKS
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.spec.names import is_name
from jobctl.jobspec.spec.reading.source import MAX_BYTES, BadSource, folder_of, read_text

_COMMAND = "a command stands after `--`: jobctl import -- torchrun train.py"


@dataclass(frozen=True, slots=True)
class ImportInput:
    """The input: a file (`-` for `stdin`), or the words of a command."""

    file: str | None
    argv: Sequence[str] | None
    stdin: BinaryIO


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the caller asked for: where the spec goes (None: nowhere), and what no command says."""

    output: Path | None
    name: str | None
    framework: str | None


@dataclass(frozen=True, slots=True)
class Imported:
    """A spec that was made: its text, that of its hosts file (empty without hosts), its comments, and the files written."""

    spec: str
    hosts: str
    notes: int
    written: tuple[Path, ...]


def import_job(given: ImportInput, wanted: ImportOptions) -> Imported:
    """Import a file or a command, and write the spec that it comes to where that is wanted."""
    _check(given, wanted)
    output = _output(wanted.output)
    job, source = _imported(given, wanted, output)
    spec, hosts = spec_text(job, source), hosts_text(job, source)
    _refuse_invalid(job, spec, output or Path("job.yaml"))
    files = {} if output is None else {output: spec, **({output.parent / "hosts.txt": hosts} if hosts else {})}
    return Imported(spec, hosts, len(job.notes), write_new(files))


def _check(given: ImportInput, wanted: ImportOptions) -> None:
    if given.file is not None and given.argv is not None:
        raise Refused("there is both a file and a command to import", "name one of them")
    if given.file is None and not given.argv:
        raise Refused("nothing is given to import", f"name a script; {_COMMAND}")
    if wanted.framework not in (None, *FRAMEWORKS):
        raise Refused(f"unknown framework `{wanted.framework}`", f"one of {', '.join(FRAMEWORKS)}")
    if wanted.name is not None and not is_name(wanted.name):
        hint = "lower-case letters, digits and `-`; a letter first, no `-` last; at most 40 characters"
        raise Refused(f"`{wanted.name}` is not a valid job name", hint)


def _output(wanted: Path | None) -> Path | None:
    if wanted is None or str(wanted) == "-":
        return None
    return wanted / "job.yaml" if wanted.is_dir() else wanted


def _imported(given: ImportInput, wanted: ImportOptions, output: Path | None) -> tuple[Found, str]:
    """Return the job and what it was made from."""
    file = given.file
    beside = folder_of(Path(file)) if file not in (None, "-") else Path()
    # The job is called after the folder that its spec lies in, which need not be the one of the command.
    folder = Path(os.path.abspath(output.parent if output else Path())).name
    context = ImportContext(os.getcwd(), folder, _reader(beside), wanted.name, wanted.framework)
    name = "stdin" if file == "-" else file
    try:
        if file is None:
            return import_command(_texts(given.argv or ()), context), "a command"
        return import_text(_text(file, given.stdin), context), str(name)
    except ImportProblem as problem:
        where = f"{name}:{problem.line}: " if file and problem.line else f"{name}: " if file else ""
        raise Refused(f"{where}{problem.message}", problem.hint) from problem


def _texts(argv: Sequence[str]) -> Sequence[str]:
    for number, word in enumerate(argv, 1):
        if any(0xD800 <= ord(char) <= 0xDFFF for char in word):
            raise Refused(f"word {number} of the command is not UTF-8 text", "a spec can hold nothing else")
    return argv


def _text(file: str, stdin: BinaryIO) -> str:
    if file == "-":
        return _stdin(stdin)
    try:
        return read_text(Path(file), file)
    except BadSource as bad:
        (problem,) = bad.diagnostics
        raise Refused(problem.message, _COMMAND if problem.code == "no-such-file" else problem.hint) from bad


def _stdin(stdin: BinaryIO) -> str:
    content = stdin.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise Refused(f"stdin is larger than {MAX_BYTES >> 20} MiB", "is it a script?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"stdin is not UTF-8 text (byte {error.start})", "is it a script?") from error
    if "\0" in text:
        raise Refused("stdin holds a NUL byte", "is it a script?")
    return text


def _reader(folder: Path) -> Callable[[str], str | None]:
    """Return how files that a script names are read: those beside it, as it would."""

    def read(name: str) -> str | None:
        try:
            path = folder / name
            return read_text(path, name) if path.is_file() else None
        except (BadSource, OSError, ValueError):
            return None

    return read


def _refuse_invalid(job: Found, spec: str, path: Path) -> None:
    """Refuse a job that breaks the rules of the language, as one of servers on devices that know none."""
    environ = dict.fromkeys(references(job.fields), "x")
    loaded = load_text(path, spec, environ=environ)
    errors = [diagnostic for diagnostic in loaded.diagnostics if diagnostic.severity == "error"]
    if errors:
        wrong = "; ".join(error.message for error in errors)
        raise Refused(f"this cannot be a job: {wrong}", next((e.hint for e in errors if e.hint), None))
