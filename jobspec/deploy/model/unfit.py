"""Which hosts are not fit, by what a check of them has found. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.finding import Finding

# What a fitness check says of a host. Any other error keeps a host from taking part at all.
MEASURED = frozenset({"slow-host", "slow-device", "slow-storage", "slow-link", "wrong-result", "differs"})


def failures_of(findings: Sequence[Finding]) -> Mapping[str, DeployError]:
    """Return why hosts are not fit, by their names: what is wrong first, and how much more there is."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.verdict == "error":
            found.setdefault(finding.host, []).append(finding)
    return {
        host: HostError(host, bad[0].code or "failed", "; ".join(f.message for f in bad), bad[0].hint)
        for host, bad in found.items()
    }


def measured_unfit(findings: Sequence[Finding]) -> Mapping[str, DeployError]:
    """Return hosts that could take part, and should not: they are slow, broken, or compute wrongly."""
    return failures_of([finding for finding in findings if finding.code in MEASURED])
