"""`prepare`: everything that `up` brings to hosts before it starts anything there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import HostsFailed
from jobctl.jobspec.operations.lifecycle.applying import locked
from jobctl.jobspec.operations.lifecycle.records import refuse_missing_data, secrets_of
from jobctl.jobspec.operations.resolve.build import have_built
from jobctl.jobspec.operations.resolve.job import refuse_missing_files
from jobctl.jobspec.operations.resolve.ownership import refuse_owner
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures
    from jobctl.jobspec.operations.lifecycle.base import JobRequest, Planned
    from jobctl.jobspec.operations.reporter import Reporter


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` did: the hosts that have all that the job needs, and those that do not."""

    hosts: tuple[str, ...]
    failed: Failures

    @property
    def code(self) -> int:
        """0 if all hosts are ready, 3 if none is, 4 if some are."""
        return 0 if not self.failed else 4 if self.hosts else 3


def prepare(planned: Planned, request: JobRequest, reporter: Reporter, *, check: bool) -> Prepared:
    """Bring code, data and images to all hosts of a job and its spares, and see that its secrets can be read.

    A job that runs goes on as it is. Raises Refused, NotYours and HostsFailed.
    """
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.model.unfit import failures_of

    refuse_missing_files(planned.compiled)
    plan, deployer = planned.plan, planned.job.deployer("prepare")
    refuse_missing_data(plan)
    secrets_of(planned.compiled)
    observed = deployer.observe()
    refuse_owner(deployer, observed, request.take_over)
    have_built(deployer, plan, reporter)
    homes = {node.host.name for node in plan.nodes} | {service.host.name for service in plan.services}
    homes |= set(deployer.spares(plan))
    failed = {host: error for host, error in deployer.failures.items() if host in homes}
    if check:
        findings = deployer.preflight(plan, homes - set(failed))
        failed = {**failed, **failures_of(findings)}
        reporter.findings([finding for finding in findings if finding.verdict == "warning"])
    try:
        with locked(deployer, "prepare", request.break_lock), reporter.waiting() as waiting:
            deployer.tell = waiting.show
            failed = {**failed, **deployer.stage(plan, homes - set(failed))}
    except DeployError as error:
        raise HostsFailed(error.message, error.hint, failures=error.failures) from error
    return Prepared(tuple(sorted(homes - set(failed))), failed)
