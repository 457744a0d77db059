"""Commands that connect to nothing: init, import, validate, schema, render."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import typer

from jobctl import console
from jobctl.console import Commands, Failed, command
from jobctl.options import Exclude, Format, Hosts, Job, On, Output, Set, SshConfig, TargetOption


@command
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.", show_default=False)] = Path("."),
    framework: Annotated[str, typer.Option("--framework", help="torch, paddle or mindspore.")] = "torch",
) -> None:
    """Write a small job.yaml and hosts.txt to start from.

    Example: jobctl init my-job
    """
    from jobctl.starter import write_starter

    for path in write_starter(directory, framework):
        console.say(f"wrote {path}")
    console.say(f"next: put your script beside it, then `jobctl up {shlex.quote(str(directory / 'job.yaml'))}`")


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
        typer.Option(
            "--framework", help="torch, paddle or mindspore, where the command does not say.", show_default=False
        ),
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
    from jobctl.code import code_json, say_left_out, selection
    from jobctl.jobs import Where, check, say_unused_hosts, show_diagnostics

    where = Where(target, hosts, on, exclude)
    checked = check(job, overrides, where)
    code = selection(checked.loaded, checked.files[0], hosts)
    errors = sum(1 for diagnostic in checked.diagnostics if diagnostic.severity == "error")
    if output is Format.json:
        diagnostics = [diagnostic.to_json() for diagnostic in checked.diagnostics]
        about = {} if code is None else {"code": code_json(code)}
        console.out_json({"valid": not errors, "diagnostics": diagnostics, **about})
    else:
        show_diagnostics(checked.diagnostics, checked.loaded.source, sys.stdout)
        if code is not None and not errors:
            say_left_out(code)
        _summary(checked.files, errors, len(checked.diagnostics) - errors)
    say_unused_hosts(checked, where)
    if errors:
        raise typer.Exit(2)


def _summary(files: Sequence[Path], errors: int, warnings: int) -> None:
    counts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
    names = " and ".join(map(str, files))
    console.say(f"{names}: {', '.join(counts) if counts else 'valid'}{' (valid)' if warnings and not errors else ''}")


@command
def schema() -> None:
    """Print the JSON Schema of the spec, for editors.

    Example: jobctl schema > job.schema.json
    """
    from jobctl.jobspec.spec.schema import json_schema

    console.out_json(json_schema())


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

    A folder per host, and once the launcher and the first control file; for Kubernetes, manifests that `kubectl apply` takes.
    The same input gives the same bytes. It connects to nothing: --ssh-config is read by `up`, and only looked for here.

    Example: jobctl render job.yaml --hosts hosts.txt --target compose --out rendered
    """
    from jobctl.jobs import Where, compile_job, plan_of, ssh_options
    from jobctl.jobspec.plan.generation import first_generation
    from jobctl.jobspec.render.artefact import render
    from jobctl.jobspec.render.errors import RenderError
    from jobctl.jobspec.render.write import write

    ssh_options(ssh_config, accept_new=False, known=None)
    compiled = compile_job(job, overrides, Where(target, hosts, on, exclude))
    plan = plan_of(compiled)
    try:
        artefacts = render(plan, first_generation(plan))
        if out is None:
            # Manifests are one stream for `kubectl apply -f -`, in which nothing may be missing.
            stream = plan.target == "kubernetes"
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


COMMANDS: Commands = {"init": init, "import": import_, "validate": validate, "schema": schema, "render": render}
