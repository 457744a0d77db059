"""`jobctl import`: a launch command, a script or a manifest as a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from jobctl.console import command
from jobctl.jobspec.spec.frameworks import NAMES


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

    Of torchrun, paddle.distributed.launch, fleetrun, msrun and deepspeed, also inside of docker run, ssh and mpirun, and of
    PaddleJob and PyTorchJob.
    Nothing is run. What cannot be carried over is told in comments.

    Example: jobctl import -o job.yaml -- torchrun --nproc-per-node=8 train.py
    """
    from jobctl.importer import Wanted, import_job

    import_job(file, ctx.obj, Wanted(output, name, framework))
