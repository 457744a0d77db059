"""`jobctl import`: a launch command, a script or a manifest as a spec."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from jobctl import console
from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.spec.frameworks import NAMES
from jobctl.views.failure import command


@command
def import_(
    ctx: typer.Context,
    file: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="FILE",
            help="A shell script, a list of variables or a manifest; `-`: stdin. Or a command after `--`.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the spec here, and hosts.txt beside it; default stdout.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", help="The job's name; default its id, or the folder's name.", show_default=False),
    ] = None,
    framework: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--framework", help=f"{NAMES}, where the command does not say.", show_default=False),
    ] = None,
) -> None:
    """Turn a launch command, a script or a manifest into a spec.

    It reads torchrun, paddle.distributed.launch, fleetrun, msrun and deepspeed, also inside of docker run, ssh and mpirun,
    and the manifests of PaddleJob and PyTorchJob. It runs nothing. Comments name the parts that it cannot carry over.

    Example: jobctl import -o job.yaml -- torchrun --nproc-per-node=8 train.py
    """
    from jobctl.jobspec.operations.authoring.importer import ImportInput, ImportOptions, import_job

    made = import_job(ImportInput(file, ctx.obj, sys.stdin.buffer), ImportOptions(output, name, framework))
    if not made.written:
        console.out(made.spec.rstrip("\n") + _as_comment(made.hosts))
    for path in made.written:
        console.say(f"wrote {path}")
    if made.notes:
        console.say(f"{counted(made.notes, 'comment')} at its end: what was not carried over, and what to check")


def _as_comment(hosts: str) -> str:
    if not hosts:
        return ""
    lines = "".join(f"#   {line}\n" for line in hosts.splitlines()[1:])
    return f"\n\n# A hosts.txt (`-o job.yaml` writes it beside the spec):\n{lines}".rstrip("\n")
