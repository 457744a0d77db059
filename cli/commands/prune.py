"""`jobctl prune`: remove the history of jobs that are down."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from jobctl import completion, console
from jobctl.jobspec.launcher.telling.words import counted, megabytes
from jobctl.options import Format, Output, duration
from jobctl.views.failure import Failed, command

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.past import PastJob
    from jobctl.jobspec.operations.lifecycle.prune import Prunable


@command
def prune(
    jobs: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="JOB",
            help="Names of jobs; default: all that are down.",
            show_default=False,
            autocompletion=completion.past_jobs,
        ),
    ] = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="T", help="Only of jobs that are down for longer, e.g. 30d.")
    ] = "0s",
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Also of jobs whose outputs `down` fetched, with these outputs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, do nothing.")] = False,
    output: Output = Format.text,
) -> None:
    """Remove the history of jobs that are down.

    Their events and collected logs on this machine. Nothing of a job that is up, or may be, and no checkpoint.

    Example: jobctl prune --older-than 30d
    """
    from jobctl.jobspec.operations.lifecycle.prune import PruneRequest, find_prunable
    from jobctl.jobspec.operations.lifecycle.prune import prune as remove

    found = find_prunable(PruneRequest(jobs or (), duration(older_than), outputs))
    if output is Format.text:
        _show(found)
    if found.jobs and not dry_run:
        if not yes:
            _confirm(found)
        told, found = len(found.kept), remove(found)
        if output is Format.text:
            _say_done(found, told)
    if output is Format.json:
        console.out_json(_json(found, dry_run=dry_run))


def _show(found: Prunable) -> None:
    """Print the jobs whose history goes, and tell which ones stay and why."""
    from jobctl.jobspec.operations.inspect.as_json import timestamp

    _say_kept(found, 0)
    if not found.jobs:
        console.say("there is no history to remove")
        return
    rows = [
        (past.job.name, past.phase, timestamp(past.since) or "-", megabytes(past.size), str(past.job.root))
        for past in found.jobs
    ]
    console.out(console.table(("JOB", "PHASE", "DOWN SINCE", "SIZE", "FOLDER"), rows))


def _confirm(found: Prunable) -> None:
    """Ask whether to go on. Ends with 2 if nobody can answer, or the answer is no."""
    if not sys.stdin.isatty():
        raise Failed("`prune` removes logs for good, and asks before that", 2, "`--yes` where nobody can answer")
    outputs = " and fetched outputs" if any(past.outputs for past in found.jobs) else ""
    console.say(f"this removes the events, logs{outputs} of {counted(len(found.jobs), 'job')} for good")
    if not typer.confirm("go on?", err=True):
        raise Failed("nothing was removed", 2)


def _say_kept(found: Prunable, told: int) -> None:
    """Tell which histories stay, beyond the first ones that the user has been told of."""
    for kept in found.kept[told:]:
        console.say(f"kept: job `{kept.name}`: {kept.reason}")


def _say_done(done: Prunable, told: int) -> None:
    _say_kept(done, told)
    if done.jobs:
        size = megabytes(sum(past.size for past in done.jobs))
        console.say(f"removed the history of {counted(len(done.jobs), 'job')}, {size}")


def _json(found: Prunable, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "jobs": [_past_json(past) for past in found.jobs],
        "kept": [{"job": kept.name, "reason": kept.reason} for kept in found.kept],
    }


def _past_json(past: PastJob) -> dict[str, Any]:
    from jobctl.jobspec.operations.inspect.as_json import timestamp

    return {
        "job": past.job.name,
        "phase": past.phase,
        "down_since": timestamp(past.since),
        "bytes": past.size,
        "folder": str(past.job.root),
    }
