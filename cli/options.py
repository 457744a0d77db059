"""Arguments and options that several commands share, written once."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from jobctl import completion
from jobctl.jobspec.spec.durations import parse_duration
from jobctl.views.failure import Failed

if TYPE_CHECKING:
    from jobctl.jobspec.spec.targets import TargetName


class Format(StrEnum):
    """How a command reports."""

    text = "text"
    json = "json"


class Target(StrEnum):
    """Where a job runs."""

    local = "local"
    compose = "compose"
    ssh = "ssh"
    kubernetes = "kubernetes"
    slurm = "slurm"


def target_name(chosen: Target | None) -> TargetName | None:
    """Return the target that an option has chosen, as plans call it."""
    return chosen.value if chosen else None


def _opened(path: Path | None) -> Path | None:
    """Return the file that an option names: `-` is the standard input."""
    return Path("/dev/stdin") if path is not None and str(path) == "-" else path


Job = Annotated[
    Optional[str],  # noqa: UP045  (typer reads the annotation at run time)
    typer.Argument(
        metavar="JOB",
        help="A spec file or the name of a known job; default ./job.yaml.",
        autocompletion=completion.jobs,
        show_default=False,
    ),
]
Jobs = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(
        metavar="JOB",
        help="Spec files or names of known jobs; default ./job.yaml.",
        autocompletion=completion.jobs,
        show_default=False,
    ),
]
Hosts = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--hosts",
        metavar="FILE",
        help="The hosts file; `-`: standard input.",
        show_default=False,
        callback=_opened,
    ),
]
On = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--on",
        metavar="H1,H2",
        help="Only these of the hosts. May be repeated.",
        show_default=False,
        autocompletion=completion.hosts,
    ),
]
Exclude = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--exclude",
        metavar="H1,H2",
        help="Not these of the hosts. May be repeated.",
        show_default=False,
        autocompletion=completion.hosts,
    ),
]
TargetOption = Annotated[
    Optional[Target],  # noqa: UP045
    typer.Option(
        "--target",
        help="Where the job runs; default `local` without hosts, `compose` with.",
        show_default=False,
    ),
]
Set = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a value of the spec with one in YAML; text with quotes in it is taken as it is: "
        "--set \"env.A='x # y'\". May be repeated.",
        show_default=False,
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to report.")]
Node = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--node", metavar="N", help="One node, by its number.", show_default=False, autocompletion=completion.nodes
    ),
]
BreakLock = Annotated[bool, typer.Option("--break-lock", help="Take the lock from its holder.")]
SshConfig = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--ssh-config", metavar="FILE", help="Read this instead of your SSH configuration.", show_default=False
    ),
]
AcceptNew = Annotated[
    bool, typer.Option("--accept-new-host-keys", help="Trust unknown host keys; a changed one is always refused.")
]
ClusterContext = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--context", metavar="NAME", help="The cluster: a context of your kubeconfig.", show_default=False),
]
Namespace = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--namespace", "-n", metavar="NS", help="The namespace in the cluster.", show_default=False),
]
# Where `-n` means what it does for `tail`.
LongNamespace = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--namespace", metavar="NS", help="The namespace in the cluster.", show_default=False),
]
Timeout = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--timeout",
        metavar="T",
        help="How long processes get to end, e.g. 30s; default as in the spec. In Kubernetes they get what the spec "
        "says, whatever T is: jobctl then waits for T and a minute.",
        show_default=False,
    ),
]
Since = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--since",
        metavar="T",
        help="From a time on (RFC 3339), or so long ago (10m).",
        show_default=False,
    ),
]
Lost = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--lost",
        metavar="HOST",
        help="A host that is gone for good: if it does not answer, `down` gives up what is there. Repeatable.",
        show_default=False,
    ),
]
SkipCheck = Annotated[bool, typer.Option("--skip-check", help="Skip the preflight of hosts.")]
TakeOver = Annotated[bool, typer.Option("--take-over", help="Take the job from another owner, or another folder.")]


def joined(choices: list[str] | None) -> str | None:
    """Return the hosts that all of a repeated option name, as one list with commas; None where it is not given."""
    return ",".join(choices) if choices else None


def duration(text: str) -> float:
    """Return the seconds that a duration such as `30s`, `10m` or a plain number means. Ends with 2 for others."""
    try:
        return parse_duration(f"{float(text):f}s" if text.replace(".", "", 1).isdigit() else text)
    except ValueError as error:
        hint = "write it as `30s`, `10m` or `1h30m`, at most 100 years"
        raise Failed(f"`{text}` is not a duration", 2, hint) from error


def moment(since: str | None) -> float | None:
    """Return the moment that `--since` means: a time, or so long ago. Ends with 2 for anything else."""
    if since is None:
        return None
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(since).timestamp()
    try:
        return time.time() - duration(since)
    except Failed:
        raise Failed(
            f"`{since}` is not a time", 2, "write how long ago, `10m`, or when, `2026-01-31T14:00:00`"
        ) from None


def grace(timeout: str | None) -> float | None:
    """Return how many seconds processes get to end, None for what the spec says."""
    return None if timeout is None else duration(timeout)


def command_after_dashes(ctx: typer.Context, name: str) -> list[str]:
    """Return the command that stands after `--`. Ends with 2 if none does."""
    rest: list[str] | None = ctx.obj
    if not rest:
        raise Failed("no command is given", 2, f"write it after `--`: jobctl {name} -- env")
    return rest
