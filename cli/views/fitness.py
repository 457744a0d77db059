"""How fast hosts are, as a table with bars."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobctl import console

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.finding import Finding

WIDTH = 20  # of the bar of a value that is equal to its median


def show_fitness(findings: Sequence[Finding]) -> None:
    """Print what was measured, by check: each value, and a bar for what it is of the value that it was compared with."""
    checks = list(dict.fromkeys(finding.check for finding in findings if finding.value is not None))
    rows = [row for check in checks for f in findings if f.check == check and (row := _row(f)) is not None]
    if rows:
        console.out(console.table(("CHECK", "HOST", "VALUE", "BAR", "COMPARED", "VERDICT"), rows))


def _row(finding: Finding) -> tuple[str, ...] | None:
    if finding.value is None or finding.unit is None:
        return None
    share = finding.value / finding.median if finding.median else None
    bar = "#" * round(WIDTH * min(share, 1.5)) if share is not None else ""
    compared = f"{100 * share:.0f} % of {finding.median:g}" if share is not None else "-"
    verdict = finding.code or finding.verdict
    return finding.check, finding.host, f"{finding.value:.6g} {finding.unit}", _block(bar), compared, verdict


def _block(bar: str) -> str:
    """Return a bar as blocks where the output can show them."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower()
    return bar.replace("#", "\u2588") if encoding in ("utf-8", "utf8") else bar
