"""What a check of hosts has found, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobctl import console

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.finding import Finding


def show_findings(findings: Sequence[Finding]) -> None:
    """Print a line for each finding, with its remedy below."""
    for finding in findings:
        colour = {"error": "red", "warning": "yellow"}.get(finding.verdict, "green")
        code = f" [{finding.code}]" if finding.code else ""
        console.say(
            f"{console.style(finding.verdict, colour)}: {finding.host}: {finding.check}: {finding.message}{code}"
        )
        if finding.hint:
            console.say(f"{console.style('hint', 'cyan')}: {finding.hint}")
