"""A job's code: what is left out of it, and whether it is large."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.telling.words import megabytes

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.code import CodeSelection, LeftOut
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.load import Loaded

SHOWN = 5  # files that are named


def no_code(spec: Path, hosts: Path | None) -> Iterator[tuple[str, str]]:
    """Yield files that may be in the code's folder and do not belong to the code, each with a reason: the spec, hosts files, jobctl's history."""
    from jobctl.jobspec.deploy.store.jobdir import state_dir
    from jobctl.jobspec.spec.reading.source import folder_of

    yield os.path.abspath(spec), _SPEC
    beside = folder_of(spec).absolute()
    for path in [*([hosts] if hosts else []), beside / "hosts.txt"]:
        yield os.path.abspath(path), _HOSTS
    for path in beside.glob("hosts*.txt"):
        if path not in (beside / "hosts.txt", hosts and hosts.absolute()) and _reads_as_hosts(path):
            yield os.path.abspath(path), "it reads as a hosts file"
    yield str(state_dir(os.environ)), _HISTORY


def _reads_as_hosts(path: Path) -> bool:
    """Say whether a file is a hosts file without doubt: one without an error, with an option or a range."""
    from jobctl.jobspec.spec.diagnostics import has_errors
    from jobctl.jobspec.spec.hosts import Host, load_hosts

    loaded = load_hosts(path)
    says_more = any(host != Host(host.name) for host in loaded.hosts)
    return not has_errors(loaded.diagnostics) and (
        says_more or "[" in path.read_text(encoding="utf-8", errors="replace")
    )


_SPEC, _HOSTS, _HISTORY = "the spec", "a hosts file", "jobctl's history"


def selection(loaded: Loaded, path: Path, hosts: Path | None) -> CodeSelection | None:
    """Return what the code of a valid spec is, None where there is no folder of it."""
    if loaded.spec is None or loaded.spec.code is None:
        return None
    from jobctl.jobspec.deploy.store.code import select
    from jobctl.jobspec.planner.code import code_of

    code = code_of(loaded.spec, str(loaded.directory))
    code = replace(code, withheld=(*code.withheld, *no_code(path, hosts)))
    if not os.path.isdir(code.source):
        return None
    where = loaded.spec.checkpoint.dir if loaded.spec.checkpoint else None
    return select(code, loaded.spec.name, loaded.spec.outputs, where)


def large_code(loaded: Loaded, code: CodeSelection | None) -> Iterator[Diagnostic]:
    """Warn of code that takes long to send: most of it is likely to be something else."""
    if code is None:
        return
    from jobctl.jobspec.deploy.store.code import LARGE
    from jobctl.jobspec.spec.diagnostics import Diagnostic

    if code.size <= LARGE:
        return
    largest = sorted(code.files, key=lambda file: (-file.size, file.name))[:3]
    named = ", ".join(f"{file.name} ({megabytes(file.size)})" for file in largest)
    message = f"the code is {megabytes(code.size)}, and every host gets all of it; the largest files: {named}"
    hint = "leave out files that are not code: `code: {source: ., exclude: [data/]}` or a line in .dockerignore"
    yield Diagnostic("warning", "large-code", message, loaded.source.value_span(("code",)), hint)


_SENT, _TAKEN_BACK = "not sent", "`code.include` sends what it names"


def say_left_out(files: Sequence[LeftOut], reporter: Reporter, what: str = _SENT, hint: str = _TAKEN_BACK) -> None:
    """Tell which files of a folder nobody gets, except jobctl's own: nobody expects those."""
    left_out = [one for one in files if one.why not in (_SPEC, _HOSTS, _HISTORY)]
    shown = ", ".join(f"{one.name} ({one.why})" for one in left_out[:SHOWN])
    more = len(left_out) - SHOWN
    if shown:
        reporter.say(f"{what}: {shown}{f' and {more} more' if more > 0 else ''}; {hint}")
