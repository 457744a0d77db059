"""`jobctl report`: a run as a web page."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from jobctl.console import command
from jobctl.options import Job


@command
def report(
    job: Job = None,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to; default ./JOB-report.html, `-`: stdout.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tell the story of a run as a web page.

    One HTML file that needs nothing else: what each node did, progress, failures and what they cost, and which part of
    the time was effective training. From what this machine recorded; nothing is connected to.

    Example: jobctl report my-job -o story.html
    """
    from jobctl.reporting import report_job

    report_job(job, output)
