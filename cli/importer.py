"""`jobctl import`: reads what is imported, writes what was found, and says what was not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobctl import console
from jobctl.console import Failed
from jobctl.jobspec.importers.draft import Found, ImportProblem
from jobctl.jobspec.importers.jobs import ImportContext, import_command, import_text, references
from jobctl.jobspec.importers.write import hosts_text, spec_text
from jobctl.jobspec.spec.frameworks import FRAMEWORKS
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.spec.names import is_name
from jobctl.jobspec.spec.source import MAX_BYTES, BadSource, read_text

_COMMAND = "a command stands after `--`: jobctl import -- torchrun train.py"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for: where the spec goes (None: stdout), and what no command says."""

    output: Path | None
    name: str | None
    framework: str | None


def import_job(file: str | None, argv: Sequence[str] | None, wanted: Wanted) -> None:
    """Import a file or a command, and write the spec that it comes to."""
    _check(file, argv, wanted)
    output = _output(wanted.output)
    job, source = _imported(file, argv, wanted, output)
    spec, hosts = spec_text(job, source), hosts_text(job, source)
    _refuse_invalid(job, spec, output or Path("job.yaml"))
    if output is None:
        console.out(spec.rstrip("\n") + _as_comment(hosts))
    else:
        _write({output: spec, **({output.parent / "hosts.txt": hosts} if hosts else {})})
    if job.notes:
        count = f"{len(job.notes)} comment{'s' if len(job.notes) > 1 else ''}"
        console.say(f"{count} at its end: what was not carried over, and what to check")


def _check(file: str | None, argv: Sequence[str] | None, wanted: Wanted) -> None:
    if file is not None and argv is not None:
        raise Failed("there is both a file and a command to import", 2, "name one of them")
    if file is None and not argv:
        raise Failed("nothing is given to import", 2, f"name a script; {_COMMAND}")
    if wanted.framework not in (None, *FRAMEWORKS):
        raise Failed(f"unknown framework `{wanted.framework}`", 2, f"one of {', '.join(FRAMEWORKS)}")
    if wanted.name is not None and not is_name(wanted.name):
        hint = "lower-case letters, digits and `-`; a letter first, no `-` last; at most 40 characters"
        raise Failed(f"`{wanted.name}` is no name for a job", 2, hint)


def _output(wanted: Path | None) -> Path | None:
    if wanted is None or str(wanted) == "-":
        return None
    return wanted / "job.yaml" if wanted.is_dir() else wanted


def _imported(file: str | None, argv: Sequence[str] | None, wanted: Wanted, output: Path | None) -> tuple[Found, str]:
    """Return the job and what it was made from."""
    beside = Path(file).parent if file not in (None, "-") else Path()
    # The job is called after the folder that its spec lies in, which need not be the one of the command.
    folder = Path(os.path.abspath(output.parent if output else Path())).name
    context = ImportContext(os.getcwd(), folder, _reader(beside), wanted.name, wanted.framework)
    name = "stdin" if file == "-" else file
    try:
        if file is None:
            return import_command(_texts(argv or ()), context), "a command"
        return import_text(_text(file), context), str(name)
    except ImportProblem as problem:
        where = f"{name}:{problem.line}: " if file and problem.line else f"{name}: " if file else ""
        raise Failed(f"{where}{problem.message}", 2, problem.hint) from problem


def _texts(argv: Sequence[str]) -> Sequence[str]:
    for number, word in enumerate(argv, 1):
        if any(0xD800 <= ord(char) <= 0xDFFF for char in word):
            raise Failed(f"word {number} of the command is not UTF-8 text", 2, "a spec can hold nothing else")
    return argv


def _text(file: str) -> str:
    if file == "-":
        return _stdin()
    try:
        return read_text(Path(file), file)
    except BadSource as bad:
        (problem,) = bad.diagnostics
        raise Failed(problem.message, 2, _COMMAND if problem.code == "no-such-file" else problem.hint) from bad


def _stdin() -> str:
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise Failed(f"stdin is larger than {MAX_BYTES >> 20} MiB", 2, "is it a script?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failed(f"stdin is not UTF-8 text (byte {error.start})", 2, "is it a script?") from error
    if "\0" in text:
        raise Failed("stdin holds a NUL byte", 2, "is it a script?")
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
        raise Failed(f"this cannot be a job: {wrong}", 2, next((e.hint for e in errors if e.hint), None))


def _as_comment(hosts: str) -> str:
    if not hosts:
        return ""
    lines = "".join(f"#   {line}\n" for line in hosts.splitlines()[1:])
    return f"\n\n# A hosts.txt (`-o job.yaml` writes it beside the spec):\n{lines}".rstrip("\n")


def _write(files: dict[Path, str]) -> None:
    taken = [str(path) for path in files if path.exists()]
    if taken:
        raise Failed(f"{' and '.join(taken)} already exist{'s' if len(taken) == 1 else ''}", 2, "nothing was written")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        console.say(f"wrote {path}")
