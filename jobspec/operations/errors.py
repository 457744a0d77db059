"""How an operation can fail: the message says place and cause, `hint` the remedy, the class what that means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jobctl.jobspec.deploy.model.errors import DeployError

if TYPE_CHECKING:
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.reading.source import Source


class OperationError(Exception):
    """An operation that was not done.

    `exit_code` is what a command ends with because of it. `kind` is its stable code, where it has one of its own. `details`
    are plain data for programs, `failures` says of single hosts why they did not do their part.
    """

    exit_code: int = 2

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        kind: str | None = None,
        details: Mapping[str, Any] | None = None,
        failures: Mapping[str, DeployError] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.hint, self.kind = message, hint, kind
        self.details, self.failures = details or {}, failures or {}


class JobFailed(OperationError):
    """The job failed, or did not recover in time."""

    exit_code = 1


class Refused(OperationError):
    """It cannot be done like that: a wrong argument, or a job that is not in the state for it."""


class UnknownJob(Refused):
    """No job of that name is known here."""


class UnsupportedOnTarget(Refused):
    """The target has no such operation."""


class HostsFailed(OperationError):
    """No host is fit, or can be reached; nothing was changed."""

    exit_code = 3


class PartlyDone(OperationError):
    """Some of it was done, and the rest was not."""

    exit_code = 4


class NotYours(OperationError):
    """The job is locked, or belongs to another user or folder."""

    exit_code = 5


class ChangedMeanwhile(NotYours):
    """Another command has changed the job since this one looked at it: on which hosts it runs, say."""


class TimedOut(OperationError):
    """The time is over."""

    exit_code = 124


class CommandNotRun(OperationError):
    """A command that the caller gave cannot be run: `exit_code` is 127 if there is none, 126 if it may not, as shells say."""

    def __init__(self, message: str, exit_code: int, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


class Invalid(Refused):
    """A file with errors: `diagnostics` has them all, `source` the text that they point into. `message` may add to them."""

    file_kind: ClassVar[str | None] = None

    def __init__(
        self, diagnostics: Sequence[Diagnostic], source: Source, message: str = "", hint: str | None = None
    ) -> None:
        data = [diagnostic.to_json() for diagnostic in diagnostics]
        super().__init__(message, hint, kind=self.file_kind, details=self._details(data))
        self.diagnostics, self.source = tuple(diagnostics), source

    def _details(self, diagnostics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"diagnostics": diagnostics}

    def __str__(self) -> str:
        errors = [one for one in self.diagnostics if one.severity == "error"]
        places = [f"{one.span.file}:{one.span.line}: {one.message} [{one.code}]" for one in errors]
        return "\n".join(filter(None, [self.message, *places]))


class InvalidSpec(Invalid):
    """A spec that is not valid for its target and hosts."""

    file_kind = "invalid-spec"

    def _details(self, diagnostics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"valid": False, "diagnostics": diagnostics}


class InvalidHosts(Invalid):
    """A hosts file that is not valid."""

    file_kind = "invalid-hosts"


class InvalidConfig(Invalid):
    """A configuration file of the user's that is not valid."""

    file_kind = "invalid-config"


class NamelessSpec(InvalidSpec):
    """A spec that the name of its job cannot be read from."""


def failure_json(host: str, error: DeployError) -> dict[str, Any]:
    """Return why a host did not do its part, as plain data."""
    return {"host": host, "code": error.code or "failed", "message": error.message, "hint": error.hint}


def failures_json(failures: Mapping[str, DeployError]) -> list[dict[str, Any]]:
    """Return why hosts did not do their part, as plain data."""
    return [failure_json(host, error) for host, error in failures.items()]
