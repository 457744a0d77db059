"""The protocol through which an operation reports while it works: a front end shows it as it likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.reading.source import Source


class Waiting(Protocol):
    """Progress of something that takes long."""

    def show(self, text: str, done: tuple[int, int] | None = None) -> None:
        """Take what the operation waits for, and how many nodes of how many are `done`."""


class Reporter(Protocol):
    """The reports of an operation, beside its result and its error."""

    def say(self, text: str) -> None:
        """Take something that a person may want to know."""

    def warn(self, message: str) -> None:
        """Take something that may surprise later."""

    def error(self, message: str, hint: str | None = None) -> None:
        """Take something that went wrong, and did not end the operation."""

    def step(self, step: Step) -> None:
        """Take a step that is about to be done."""

    def findings(self, findings: Sequence[Finding]) -> None:
        """Take what a check of hosts has found that is not fine."""

    def diagnostics(self, diagnostics: Sequence[Diagnostic], source: Source) -> None:
        """Take warnings about a spec that is valid; `source` is the text that they point into."""

    def waiting(self, *, aloud: bool = False) -> AbstractContextManager[Waiting]:
        """Show in the block what the operation waits for; with `aloud`, a person should hear of it in any case."""


class Silent:
    """The reporter of a caller who wants results and errors only."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def warn(self, message: str) -> None:
        """Say nothing."""

    def error(self, message: str, hint: str | None = None) -> None:
        """Say nothing."""

    def step(self, step: Step) -> None:
        """Say nothing."""

    def findings(self, findings: Sequence[Finding]) -> None:
        """Say nothing."""

    def diagnostics(self, diagnostics: Sequence[Diagnostic], source: Source) -> None:
        """Say nothing."""

    def show(self, text: str, done: tuple[int, int] | None = None) -> None:
        """Say nothing."""

    @contextmanager
    def waiting(self, *, aloud: bool = False) -> Iterator[Waiting]:
        """Say nothing."""
        yield self


SILENT = Silent()
