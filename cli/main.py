"""The entry point: which commands there are, and nothing of what they do."""

from __future__ import annotations

import atexit
import gc
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from jobctl import console

OBJECTS = 200_000  # more of them than before, after which the collector looks for cycles among the new ones
# In the order of `--help`. Each is a module of jobctl.commands, of which only what is asked for is imported.
COMMANDS = (
    *("init", "import", "validate", "schema", "render"),
    *("plan", "prepare", "up", "scale", "drill", "supervise", "stop", "restart", "down", "prune"),
    *("check", "status", "top", "list", "wait", "events", "report", "notify", "metrics", "ui"),
    *("logs", "exec", "ssh", "ssh-config", "forward", "run", "pull", "data"),
    "config",
)


def function_of(name: str) -> Callable[..., None]:
    """Return the function of a command: it is called like its module, with `_` where Python has the word already."""
    name = name.replace("-", "_")
    module = import_module(f"jobctl.commands.{'import_' if name == 'import' else name}")
    function: Callable[..., None] = getattr(module, name, None) or getattr(module, f"{name}_")
    return function


def listed(name: str) -> Callable[..., None]:
    """Return what stands for a command in `--help`: what it does. To read the options of all would take longer."""

    def command() -> None:
        pass

    command.__doc__ = function_of(name).__doc__
    return command


class _Commands(TyperGroup):
    """All commands. Typer reads values by pydantic: errors leave out the words that pydantic puts before them."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options before the command."""
        with _own_words():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Read the command's own options, and run it."""
        with _own_words():
            return super().invoke(ctx)


class _Command(TyperCommand):
    """A command. It takes one value of an option that says what it is about: of two the last would count, without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        given = list(args)  # which are taken away as they are read
        rest: list[str] = super().parse_args(ctx, args)
        order = [] if ctx.resilient_parsing else self.make_parser(ctx).parse_args(args=given)[2]
        names = [param.name for param in order if not getattr(param, "multiple", False)]
        for name in _ONCE:
            if names.count(name) > 1:
                ctx.fail(f"--{name} is given {names.count(name)} times: it takes one value")
        return rest


_ONCE = ("node", "rank", "generation", "hosts", "target", "context", "namespace")


@contextmanager
def _own_words() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


def application(names: Iterable[str], find: Callable[[str], Callable[..., None]] = function_of) -> typer.Typer:
    """Return the command with those of its commands that are named; `find` returns the function of each."""
    app = typer.Typer(
        name="jobctl",
        cls=_Commands,
        help="Distributed training on bare metal: one YAML job spec, compiled, started and kept alive.\n\n"
        "Example: jobctl up job.yaml --hosts hosts.txt --follow",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_root)
    for name in names:
        more = {"allow_extra_args": name == "ssh"}  # which says what to type for a command
        app.command(name, cls=_Command, context_settings=more)(find(name))
    return app


def _version(asked: bool) -> None:
    if asked:
        from jobctl.jobspec.operations.version import version

        typer.echo(f"jobctl {version()}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    color: Annotated[
        console.Colour,
        typer.Option(
            "--color",
            help="When to use colours, before or after the command; `auto`: on terminals, as NO_COLOR and FORCE_COLOR say.",
        ),
    ] = console.Colour.auto,
) -> None:
    del version
    console.choose_colour(color)


def _take_color(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return `--color` with its value, wherever it is before `--`, and the other arguments: people add it at the end of a command."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    taken: list[str] = []
    left: list[str] = []
    words = iter(arguments[:end])
    for word in words:
        if word == "--color":
            taken.append(f"--color={next(words, '')}")  # one word: without a value, the next option is none
        else:
            (taken if word.startswith("--color=") else left).append(word)
    return taken, [*left, *arguments[end:]]


def _fill_fitness(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a value for `check --fitness`, which needs none: the word after it may be the job."""
    if arguments[:1] != ["check"]:
        return list(arguments)
    follows = zip(arguments, [*arguments[1:], ""], strict=True)
    bare = [word == "--fitness" and after not in ("off", "quick", "full") for word, after in follows]
    return ["--fitness=quick" if alone else word for word, alone in zip(arguments, bare, strict=True)]


def _fill_streams() -> None:
    """Put /dev/null in the place of standard streams that are closed: the next file opened would become one."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def _tell_warnings() -> None:
    """Have jobctl's own warnings look like those that commands tell; others stay as Python shows them."""
    plain = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if category.__module__.startswith("jobctl."):
            console.warning(str(message))
        else:
            plain(message, category, *place)

    warnings.showwarning = show  # type: ignore[assignment]


class _Errors(io.FileIO):
    """The stderr of this process, whose disk may be full: what cannot be written there is lost, the command goes on.

    Raises BrokenPipeError all the same: nobody reads any more.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes


def _overlook_errors() -> None:
    """Keep what cannot be written on stderr from ending the command with another code than its own."""
    encoding = sys.stderr.encoding
    if sys.stderr is sys.__stderr__:  # not that of a test
        raw = io.BufferedWriter(_Errors(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)


def main(argv: list[str] | None = None) -> None:
    """Run the command in `argv` (default: this process's) and exit with its code.

    What follows `--` after `run`, `exec`, `ssh` and `import` is a command, whatever it looks like; it is taken off before
    options and the optional argument are read.
    """
    # Nearly all that a command makes stays until it ends: looking for what does not took a tenth of its time, and as long
    # again at its end, when the interpreter looks once more.
    gc.set_threshold(OBJECTS)
    atexit.register(gc.freeze)
    _fill_streams()
    _tell_warnings()
    _overlook_errors()
    given = sys.argv[1:] if argv is None else argv
    rest: list[str] | None = None
    color, given = _take_color(given)
    if given[:1] in (["run"], ["exec"], ["ssh"], ["import"]) and "--" in given:
        at = given.index("--")
        given, rest = given[:at], given[at + 1 :]
    given = _fill_fitness(given)
    try:
        try:
            if wants_json(given):
                _end_with_json(_application(given), [*color, *given], rest)
            else:
                _application(given)(args=[*color, *given], prog_name="jobctl", obj=rest)
        finally:
            console.deliver()
    except BrokenPipeError:
        console.give_up_output()
        sys.exit(141)
    except OSError as problem:  # of `--help` and `--version`, or of what a command has printed, and kept back until now
        console.give_up_output()
        problem.filename = problem.filename or "standard output"
        console.error(*console.file_error(problem))
        sys.exit(2)


def _application(given: Sequence[str]) -> typer.Typer:
    """Return the command with as much as these arguments need: to read all options takes longer than most commands."""
    if "_JOBCTL_COMPLETE" in os.environ:
        from jobctl.completion import color_value, command_in

        os.environ.update(color_value(os.environ))
        return application(command_in(os.environ, COMMANDS))
    first = given[0] if given else ""
    if first in COMMANDS:
        return application([first])
    if first == "--":  # then a command may follow
        return application(COMMANDS)
    return application(()) if first == "--version" else application(COMMANDS, listed)


def wants_json(arguments: Sequence[str]) -> bool:
    """Say whether arguments ask for JSON, whatever else is wrong with them; `-o` of some commands is a file."""
    if arguments[:1] in (["report"], ["import"]):
        return False
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)  # there may be none at all
    return any(_OUTPUT.fullmatch(one) and (_JSON.search(one) or other == "json") for one, other in pairs)


_OUTPUT = re.compile("--output(=json)?|-[a-z]*o(=?json)?")
_JSON = re.compile("json$")


def _end_with_json(app: typer.Typer, arguments: Sequence[str], rest: Sequence[str] | None) -> NoReturn:
    """Run the command; what is wrong with its arguments is told as JSON, too."""
    console.begin()
    try:
        code = app(args=arguments, prog_name="jobctl", obj=rest, standalone_mode=False)
    except typer.Abort:
        console.say("Aborted!")
        code = 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # what all errors of usage have
            raise
        error.show()  # type: ignore[attr-defined]
        code = error.exit_code  # type: ignore[attr-defined]
        from jobctl.views.failure import Failed, out_error

        out_error(Failed(error.format_message(), code))
    sys.exit(code or 0)
