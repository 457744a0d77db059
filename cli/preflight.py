"""What `check` prints, and what `up` makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.console import Failed
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobs import Where
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.plan.types import Plan


def check_job(
    job: str | None,
    overrides: list[str] | None,
    where: Where,
    ssh_config: Path | None,
    accept_new: bool,
    deep: bool,
    output: Format,
) -> None:
    """Check all hosts: of a job, or of a hosts file alone. Ends with 3 if something is wrong."""
    from jobctl.jobs import as_started

    where = as_started(job, where)
    deployer, plan = _handle(job, overrides, where, ssh_config, accept_new, output)
    findings = deployer.preflight(plan, deployer.where(), deep=deep)
    bad = failures_of(findings)
    if output is Format.json:
        console.out_json({"ok": not bad, "findings": [_json(finding) for finding in findings]})
    else:
        show_findings([f for f in findings if f.verdict != "ok"])
        _summary(findings, where, len(deployer.where()), len(bad))
    if bad:
        raise Failed("", 3)


def _handle(
    job: str | None,
    overrides: list[str] | None,
    where: Where,
    ssh_config: Path | None,
    accept_new: bool,
    output: Format,
) -> tuple[Handle, Plan | None]:
    from jobctl.counting import devices_to_check
    from jobctl.jobs import (
        DEFAULT_SPEC,
        choose_target,
        compile_job,
        deployer_of,
        job_of_name,
        known_hosts,
        plan_of,
        ssh_options,
    )
    from jobctl.jobspec.deploy.model.inventory import Inventory

    if choose_target(where) == "kubernetes":
        return _cluster(job, overrides, where, output)
    if job is None and not Path(DEFAULT_SPEC).exists():
        if where.hosts is None:
            raise Failed("`check` looks at hosts", 2, "name them: `--hosts hosts.txt`")
        inventory = Inventory(known_hosts(where), ssh_options(ssh_config, accept_new, None))
        return deployer_of(job_of_name("check"), "ssh", inventory), None
    compiled = compile_job(job, overrides, where, quiet=True, as_json=output is Format.json)
    directory = job_of_name(compiled.spec.name)
    old, ssh = directory.plan(), ssh_options(ssh_config, accept_new, directory.inventory())
    there = Inventory(compiled.hosts, ssh) if compiled.target != "local" else None
    deployer = deployer_of(directory, compiled.target, there, old)
    plan = deployer.plan = plan_of(compiled, devices=devices_to_check(compiled, deployer, old))
    return deployer, plan


def _cluster(job: str | None, overrides: list[str] | None, where: Where, output: Format) -> tuple[Handle, Plan | None]:
    """Return the cluster that is checked, for a job or for none."""
    from jobctl.jobs import DEFAULT_SPEC, compile_job, job_of_name
    from jobctl.running import cluster_for, cluster_of

    if job is None and not Path(DEFAULT_SPEC).exists():
        return cluster_of(job_of_name("check"), where.context, where.namespace), None
    compiled = compile_job(job, overrides, where, quiet=True, as_json=output is Format.json)
    plan, cluster = cluster_for(compiled, where)
    return cluster, plan


def failures_of(findings: Sequence[Finding]) -> Failures:
    """Return why hosts are not fit, by their names: what is wrong first, and how much more there is."""
    from jobctl.jobspec.deploy.model.errors import HostError

    found: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.verdict == "error":
            found.setdefault(finding.host, []).append(finding)
    return {
        host: HostError(host, bad[0].code or "failed", "; ".join(f.message for f in bad), bad[0].hint)
        for host, bad in found.items()
    }


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


def _summary(findings: Sequence[Finding], where: Where, hosts: int, bad: int) -> None:
    from jobctl.jobs import choose_target

    what = "cluster" if choose_target(where) == "kubernetes" else "host"
    checks = f"{len(findings)} verdict{'' if len(findings) == 1 else 's'} on {hosts} {what}{'' if hosts == 1 else 's'}"
    warnings = sum(1 for finding in findings if finding.verdict == "warning")
    told = f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    console.say(f"{checks}{told}: " + (f"{bad} not fit" if bad else "all fit"))


def _json(finding: Finding) -> dict[str, str | None]:
    return {
        "host": finding.host,
        "check": finding.check,
        "verdict": finding.verdict,
        "code": finding.code,
        "message": finding.message,
        "hint": finding.hint,
    }
