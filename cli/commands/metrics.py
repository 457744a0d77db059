"""`jobctl metrics`: jobs that are up, in the format of Prometheus and OpenMetrics."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from jobctl import completion, console
from jobctl.views.failure import command

if TYPE_CHECKING:
    from jobctl.jobspec.operations.inspect.metrics import MetricsSource


@command
def metrics(
    jobs: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="JOB",
            help="Names of known jobs, or spec files; default all that are up.",
            autocompletion=completion.jobs,
            show_default=False,
        ),
    ] = None,
    listen: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--listen",
            metavar="ADDR:PORT",
            help="Serve them over HTTP instead; without ADDR on loopback only.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print metrics of jobs that are up (OpenMetrics).

    Phase, progress, restarts and goodput of each job, and how busy hosts and devices are. Without JOB, of all jobs that
    are known here.

    Example: jobctl metrics --listen 127.0.0.1:9185
    """
    from jobctl.jobspec.operations.inspect.metrics import metrics_of

    with closing(metrics_of(jobs or (), live=listen is not None)) as source:
        if listen is None:
            console.out_bytes(source.text().encode())
        else:
            _serve(source, listen)


def _serve(source: MetricsSource, listen: str) -> None:
    from jobctl.jobspec.operations.serve.http_server import parse_address
    from jobctl.jobspec.operations.serve.metrics_server import MetricsServer

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with MetricsServer(parse_address(listen), source) as server:
        console.say(f"serves {server.url}")
        server.serve_forever()
