"""`jobctl init`: a spec and a hosts file to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from jobctl import completion, console
from jobctl.jobspec.spec.frameworks import NAMES
from jobctl.views.failure import command


@command
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.", show_default=False)] = Path("."),
    framework: Annotated[
        str, typer.Option("--framework", help=f"{NAMES}.", autocompletion=completion.frameworks)
    ] = "torch",
) -> None:
    """Write a small job.yaml and hosts.txt to start from.

    Example: jobctl init my-job
    """
    from jobctl.jobspec.operations.authoring.starter import write_starter

    for path in write_starter(directory, framework):
        console.say(f"wrote {path}")
    console.say(f"next: put your script beside it, then `jobctl up {shlex.quote(str(directory / 'job.yaml'))}`")
