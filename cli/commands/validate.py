"""`jobctl validate`: every error and warning of a spec."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jobctl import console
from jobctl.jobspec.launcher.telling.words import counted
from jobctl.options import Exclude, Format, Hosts, Job, On, Output, Set, TargetOption, joined, target_name
from jobctl.views.failure import command

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.code import CodeSelection


@command
def validate(
    job: Job = None,
    hosts: Hosts = None,
    on: On = None,
    exclude: Exclude = None,
    target: TargetOption = None,
    overrides: Set = None,
    output: Output = Format.text,
) -> None:
    """Report every error and warning of a spec.

    With place and remedy, all at once; with --hosts also of the hosts file, and of both together.

    Example: jobctl validate job.yaml --hosts hosts.txt
    """
    from jobctl.jobspec.operations.resolve.build import say_not_built
    from jobctl.jobspec.operations.resolve.code import say_left_out, selection
    from jobctl.jobspec.operations.resolve.job import Where, as_started, check, say_default_hosts, say_unused_hosts
    from jobctl.jobspec.operations.resolve.planning import checked_plan
    from jobctl.views.diagnostics import show_diagnostics
    from jobctl.views.reporter import Terminal

    reporter = Terminal(output)
    where = as_started(job, Where(target_name(target), hosts, joined(on), joined(exclude)), needs_hosts=False)
    say_default_hosts(where, reporter)
    checked = checked_plan(check(job, overrides, where))
    code = checked.code or selection(checked.loaded, checked.files[0], where.hosts)
    errors = sum(1 for diagnostic in checked.diagnostics if diagnostic.severity == "error")
    if output is Format.json:
        diagnostics = [diagnostic.to_json() for diagnostic in checked.diagnostics]
        about = {} if code is None else {"code": _code_json(code)}
        console.out_json({"valid": not errors, "diagnostics": diagnostics, **about})
    else:
        show_diagnostics(checked.diagnostics, checked.loaded.source, sys.stdout)
        if code is not None and not errors:
            say_left_out(code.left_out, reporter)
        if checked.compiled is not None:
            say_not_built(checked.compiled, reporter)
        _summary(checked.files, errors, len(checked.diagnostics) - errors)
    say_unused_hosts(checked, where, reporter)
    if errors:
        raise typer.Exit(2)


def _code_json(code: CodeSelection) -> dict[str, Any]:
    left_out = [{"path": one.name, "reason": one.why} for one in code.left_out]
    return {"files": len(code.files), "bytes": code.size, "left_out": left_out}


def _summary(files: Sequence[Path], errors: int, warnings: int) -> None:
    counts = [counted(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count]
    names = " and ".join(map(str, files))
    console.say(f"{names}: {', '.join(counts) if counts else 'valid'}{' (valid)' if warnings and not errors else ''}")
