"""What operations tell, shown to a person: words and progress on stderr, steps unless JSON is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.options import Format
from jobctl.views.progress import Progress

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.reading.source import Source


class Terminal:
    """The reporter of a command."""

    def __init__(self, output: Format = Format.text) -> None:
        self.quiet = output is Format.json

    def say(self, text: str) -> None:
        """Print it."""
        console.say(text)

    def warn(self, message: str) -> None:
        """Print it as a warning."""
        console.warning(message)

    def error(self, message: str, hint: str | None = None) -> None:
        """Print it as an error, with its remedy."""
        console.error(message, hint)

    def step(self, step: Step) -> None:
        """Print the step; in JSON the result tells it."""
        if not self.quiet:
            console.say(str(step))

    def findings(self, findings: Sequence[Finding]) -> None:
        """Print a line for each finding."""
        from jobctl.views.findings import show_findings

        show_findings(findings)

    def diagnostics(self, diagnostics: Sequence[Diagnostic], source: Source) -> None:
        """Print diagnostics with source lines and carets."""
        from jobctl.views.diagnostics import show_diagnostics

        show_diagnostics(diagnostics, source)

    def waiting(self, *, aloud: bool = False) -> Progress:
        """Show progress on a terminal."""
        return Progress(quiet=self.quiet, aloud=aloud)
