"""`jobctl render`: the files that `up` would send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from jobctl import console
from jobctl.options import Exclude, Hosts, Job, On, Set, SshConfig, TargetOption, joined, target_name
from jobctl.views.failure import Failed, command


@command
def render(
    job: Job = None,
    hosts: Hosts = None,
    on: On = None,
    exclude: Exclude = None,
    target: TargetOption = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="DIR", help="Write into DIR instead of printing.", show_default=False),
    ] = None,
    overrides: Set = None,
    ssh_config: SshConfig = None,
) -> None:
    """Write exactly what `up` would send.

    A folder per host, and once the launcher and the first control file; for Kubernetes, manifests that
    `kubectl apply --server-side` takes.
    The same input gives the same bytes. It connects to nothing: --ssh-config is read by `up`, and only looked for here.

    Example: jobctl render job.yaml --hosts hosts.txt --target compose --out rendered
    """
    from jobctl.jobspec.operations.resolve.job import Where, as_started, compile_job
    from jobctl.jobspec.operations.resolve.planning import plan_of, ssh_options
    from jobctl.jobspec.plan.generation import first_generation
    from jobctl.jobspec.render.artefact import render
    from jobctl.jobspec.render.errors import RenderError
    from jobctl.jobspec.render.write import write
    from jobctl.jobspec.spec.targets import traits_of
    from jobctl.views.reporter import Terminal

    ssh_options(ssh_config, accept_new=False, known=None)
    where = as_started(job, Where(target_name(target), hosts, joined(on), joined(exclude)))
    compiled = compile_job(job, overrides, where, Terminal())
    plan = plan_of(compiled)
    try:
        artefacts = render(plan, first_generation(plan))
        if out is None:
            # Manifests are one stream for `kubectl apply --server-side -f -`, in which nothing may be missing.
            stream = traits_of(plan.target).is_stream
            for artefact in artefacts:
                if stream or artefact.shown:
                    begin = "---\n" if stream else ""
                    console.out(f"{begin}# {artefact.path}\n{artefact.content.decode()}")
            return
        written = write(artefacts, out)
    except RenderError as error:
        raise Failed(f"{error.message} [{error.code}]", 2, error.hint) from error
    console.say(f"wrote {written.files} files to {out}")
    for path in written.kept:
        console.warning(f"{out / path} was changed by hand since it was rendered, and is kept")
