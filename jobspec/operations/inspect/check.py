"""Whether hosts, or a cluster, are fit: for a job, or for any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.unfit import failures_of
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve.job import DEFAULT_SPEC, Reached, Where, as_started, check, compiled_of
from jobctl.jobspec.operations.targets.base import CheckRequest
from jobctl.jobspec.operations.targets.choose import choose_target
from jobctl.jobspec.operations.targets.table import finder_of
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.fitness_mode import FitnessMode
from jobctl.jobspec.spec.targets import TARGETS

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures
    from jobctl.jobspec.deploy.model.finding import Finding


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found. `hosts` are all that were checked, of which a cluster counts as one."""

    findings: tuple[Finding, ...]
    hosts: tuple[str, ...]
    cluster: bool

    @property
    def unfit(self) -> Failures:
        """Why hosts are not fit, by their names."""
        return failures_of(self.findings)

    @property
    def unmeasured(self) -> frozenset[str]:
        """Hosts with which nothing is wrong, and which a fitness check has left out."""
        measured = {finding.host for finding in self.findings if finding.value is not None}
        skipped = {one.host for one in self.findings if (one.check, one.verdict) == ("compute", "skipped")}
        return frozenset(skipped - measured - set(self.unfit))


def check_hosts(
    job: str | None,
    overrides: Sequence[str] | None,
    where: Where,
    reached: Reached,
    *,
    deep: bool = False,
    fitness: FitnessMode = "off",
) -> CheckResult:
    """Check all hosts: of a job, or of a hosts file alone; with `fitness` also how fast they are."""
    where = as_started(job, where)
    target = choose_target(where)
    traits = TARGETS[target]
    alone = job is None and not Path(DEFAULT_SPEC).exists()
    compiled = None if alone else compiled_of(check(job, overrides, where))
    if fitness != "off" and not traits.takes_hosts:
        hint = "leave out `--fitness`, or name hosts: `--target compose --hosts hosts.txt`"
        raise Refused(f"`--fitness` compares hosts, and target `{target}` has none", hint)
    findings, hosts = finder_of(target).check(CheckRequest(compiled, where, reached, deep, fitness))
    return CheckResult(tuple(findings), hosts, cluster=traits.chooses_nodes)
