"""What a check of hosts has found, host by host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.errors import HostError

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures
    from jobctl.jobspec.deploy.model.finding import Finding


def failures_of(findings: Sequence[Finding]) -> Failures:
    """Return why hosts are not fit, by their names: what is wrong first, and how much more there is."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.verdict == "error":
            found.setdefault(finding.host, []).append(finding)
    return {
        host: HostError(host, bad[0].code or "failed", "; ".join(f.message for f in bad), bad[0].hint)
        for host, bad in found.items()
    }
