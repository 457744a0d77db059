"""The entry point: which commands there are, and nothing of what they do."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from jobctl import change, compile, look, output

app = typer.Typer(
    name="jobctl",
    help="Distributed training on bare metal: one YAML job spec, compiled, started and kept alive.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

for _group in (compile.COMMANDS, change.COMMANDS, look.COMMANDS, output.COMMANDS):
    for _name, _function in _group.items():
        app.command(_name)(_function)


def _version(asked: bool) -> None:
    if asked:
        from jobctl.version import version

        typer.echo(f"jobctl {version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def main(argv: list[str] | None = None) -> None:
    """Run the command in `argv` (default: this process's) and exit with its code.

    What follows `--` after `run` and `exec` is a command for the node, whatever it looks like; it is taken off
    before options and the optional JOB are read.
    """
    given = sys.argv[1:] if argv is None else argv
    rest: list[str] | None = None
    if given[:1] in (["run"], ["exec"]) and "--" in given:
        at = given.index("--")
        given, rest = given[:at], given[at + 1 :]
    app(args=given, prog_name="jobctl", obj=rest)
