"""How a command ends that could not do its work: in words, as JSON, and with the contract's exit codes."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import typer

from jobctl.console import NO_ROOM, begin, error, file_error, give_up_output, out_json_line, said, say
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.operations.errors import (
    HostsFailed,
    Invalid,
    InvalidSpec,
    OperationError,
    failures_json,
)

P = ParamSpec("P")
R = TypeVar("R")


class Failed(OperationError):
    """A command that ends with `code`: its options do not fit together, or what it did calls for that code."""

    def __init__(
        self,
        message: str,
        code: int = 2,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(message, hint, kind=kind, details=details)
        self.exit_code = code


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that its failures are printed in one form and end with the contract's exit codes."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        begin()
        try:
            interruptible()
            return function(*args, **kwargs)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except typer.Abort as unanswered:  # of a question, after which the line goes on
            say("")
            if not isinstance(unanswered.__context__, EOFError):
                raise typer.Exit(130) from None
            failed: OperationError = Failed("nothing was done: nobody answered the question", 2)
        except BrokenPipeError:
            give_up_output()  # the reader (head, less) has gone
            raise typer.Exit(141) from None
        except Exception as problem:
            known = _as_failed(problem)
            if known is None:
                raise
            failed = known
        as_json = getattr(kwargs.get("output"), "value", None) == "json"
        _tell(failed, as_json=as_json)
        if as_json:
            out_error(failed)
        raise typer.Exit(failed.exit_code)

    return guarded


_interrupts: list[int] = []  # the signals of Ctrl-C that have come


def interruptible() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from here on: the start of the process has replaced that (`__main__.py`)."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _interrupts.append(number)
        signal.default_int_handler(number, frame)

    now = signal.getsignal(signal.SIGINT)
    if callable(now) and now is not signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def attempt(do: Callable[[], R]) -> R | OperationError:
    """Return the result of one part of a command, or tell and return its failure, so that the other parts follow."""
    try:
        return do()
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as problem:
        failed = _as_failed(problem)
        if failed is None:
            raise
    _tell(failed, as_json=False)
    return failed


def _tell(failed: OperationError, *, as_json: bool) -> None:
    """Tell a person why the command failed."""
    if isinstance(failed, Invalid) and not (as_json and isinstance(failed, InvalidSpec)):
        from jobctl.views.diagnostics import show_diagnostics

        show_diagnostics(failed.diagnostics, failed.source)
    for one in failed.failures.values():
        error(one.message, one.hint)
    if failed.message:
        error(failed.message, failed.hint)


def _as_failed(problem: Exception) -> OperationError | None:
    """Return how a command ends that `problem` has ended, None for a bug, which must show. Raises Exit after Ctrl-C."""
    if isinstance(problem, MemoryError):
        hint = "`ulimit -v` says how much this shell gives to a command"
        return Failed("there is not enough memory for this command", 2, hint, kind="memory")
    if _starts_no_more(problem):
        hint = "`ulimit -u` says how many one user may have; a login node or a container may have a limit of its own"
        return Failed("this machine starts no further process or thread", 2, hint, kind="processes")
    if isinstance(problem, OperationError):
        return problem
    if isinstance(problem, DeployError):
        failed = HostsFailed(problem.message, problem.hint, kind=problem.code, failures=problem.failures)
        failed.__cause__ = problem
        return failed
    if isinstance(problem, OSError):
        what, remedy = file_error(problem)
        return Failed(what, 2, remedy, kind="disk-full" if problem.errno in NO_ROOM else "file")
    if _interrupts:  # a library has made another error of the interruption
        raise typer.Exit(130)
    if os.environ.get("JOBCTL_DEBUG"):
        return None
    message = f"jobctl has a bug: {type(problem).__name__}: {problem}"
    return Failed(message, 70, "JOBCTL_DEBUG=1 shows where; please report it", kind="bug")


def _starts_no_more(problem: Exception) -> bool:
    """Say whether the kernel has refused a process or a thread, as where a user has as many as a limit allows."""
    if isinstance(problem, OSError):
        return problem.errno == errno.EAGAIN and problem.filename is None
    return isinstance(problem, RuntimeError) and str(problem).startswith("can't start new thread")


# The kinds of errors without a code of their own, by the exit code, and their words where nothing was said.
_KINDS = {
    1: ("job-failed", "the job failed"),
    2: ("usage", "it cannot be done like that"),
    3: ("hosts-failed", "hosts are not fit, or cannot be reached"),
    4: ("partly-done", "some hosts did their part, others not"),
    5: ("not-yours", "the job is locked, or belongs to someone else"),
    124: ("timeout", "the time is over"),
}


_WORDS = {
    "invalid-spec": "the spec is not valid: `diagnostics` says why",
    "invalid-config": "the configuration file is not valid: `diagnostics` says why",
    "invalid-hosts": "the hosts file is not valid: `diagnostics` says why",
}


def out_error(failed: OperationError) -> None:
    """Print how the command failed as a line of JSON, unless what it has printed says so already."""
    if not said.out:
        out_json_line(error_json(failed))


def error_json(failed: OperationError) -> dict[str, Any]:
    """Return how a command, or one part of it, failed."""
    kind, words = _KINDS.get(failed.exit_code, ("failed", "it failed"))
    own = _WORDS.get(failed.kind or kind)  # the first words may be about another part
    first = (failed.message, failed.hint) if failed.message else (not own and said.error) or (own or words, None)
    cause = failed.__cause__
    code = failed.kind or (cause.code if isinstance(cause, DeployError) else None) or kind
    told = {"code": code, "message": first[0], "hint": first[1], "exit_code": failed.exit_code}
    failures = failed.failures or ({cause.host: cause} if isinstance(cause, HostError) else {})
    hosts = {"failed_hosts": failures_json(failures)} if failures else {}
    return {"error": told, **hosts, **failed.details}
