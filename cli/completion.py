"""What the shell offers when a user presses Tab: names of jobs, nodes and hosts. It must be quick, and never fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path

import typer

Complete = Callable[[typer.Context, str], list[str]]


def _quietly(complete: Complete) -> Complete:
    """Wrap a completion so that it offers nothing where it fails: an error would be printed into the line that is typed."""

    @wraps(complete)
    def guarded(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return [one for one in complete(ctx, incomplete) if one.startswith(incomplete)]
        except Exception:
            return []

    return guarded


@_quietly
def jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer known jobs that are not in the line yet, and spec files."""
    from jobctl.jobspec.operations.inspect.suggest import job_names, spec_files

    given = ctx.params.get("jobs") or ()
    return [one for one in (*job_names(), *spec_files(incomplete)) if one not in given]


@_quietly
def past_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer known jobs alone."""
    from jobctl.jobspec.operations.inspect.suggest import job_names

    return [one for one in job_names() if one not in (ctx.params.get("jobs") or ())]


@_quietly
def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the nodes and services of the job in the line."""
    from jobctl.jobspec.operations.inspect.suggest import node_names

    return node_names(_job(ctx))


@_quietly
def hosts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer hosts, the next one of a list too: `gpu01,`."""
    from jobctl.jobspec.operations.inspect.suggest import host_names

    chosen, comma, _ = incomplete.rpartition(",")
    given = ctx.params.get("hosts")
    names = host_names(_job(ctx), Path(given) if given else None)
    return [f"{chosen}{comma}{name}" for name in names if name not in chosen.split(",")]


@_quietly
def frameworks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the frameworks that `init` knows."""
    from jobctl.jobspec.spec.frameworks import FRAMEWORKS

    return list(FRAMEWORKS)


def _job(ctx: typer.Context) -> str | None:
    """Return JOB as it is in the line: where an option waits for its value, it is read, but no parameter yet."""
    job: str | None = ctx.params.get("job") or next(iter(ctx.args), None)
    return job


# A line that waits for the value of `--color` behind a command, in the separators of any shell.
_WAITS_FOR_COLOR = re.compile(r"(?!.*\s--\s)(?P<program>\S+)\s.*\s--color(?P<mark>\s)(?P<begun>\S*)", re.DOTALL)


def color_value(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what makes the shell complete the value of `--color` behind a command: the parser knows it before one only."""
    name = "COMP_WORDS" if "COMP_WORDS" in environ else "_TYPER_COMPLETE_ARGS"
    found = _WAITS_FOR_COLOR.fullmatch(environ.get(name, ""))
    if found is None:
        return {}
    return {name: found["mark"].join((found["program"], "--color", found["begun"])), "COMP_CWORD": "2"}


def command_in(environ: Mapping[str, str], commands: Sequence[str]) -> tuple[str, ...]:
    """Return the command in the line that the shell completes, all where none is there yet: reading all takes a while."""
    line = environ.get("COMP_WORDS") or environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = line.split()
    later = len(words) > 2 or line[-1:].isspace() or environ.get("COMP_CWORD", "1") not in ("0", "1")
    return (words[1],) if later and len(words) > 1 and words[1] in commands else tuple(commands)
