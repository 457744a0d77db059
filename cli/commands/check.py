"""`jobctl check`: whether hosts are fit."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from jobctl import console
from jobctl.jobspec.launcher.telling.words import counted
from jobctl.options import (
    AcceptNew,
    ClusterContext,
    Exclude,
    Format,
    Hosts,
    Job,
    Namespace,
    On,
    Output,
    Set,
    SshConfig,
    TargetOption,
    joined,
    target_name,
)
from jobctl.views.failure import Failed, command

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.operations.inspect.check import CheckResult


class Fitness(StrEnum):
    """How thoroughly hosts are measured."""

    off = "off"
    quick = "quick"
    full = "full"


@command
def check(
    job: Job = None,
    hosts: Hosts = None,
    on: On = None,
    exclude: Exclude = None,
    target: TargetOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also import the framework in a container.")] = False,
    fitness: Annotated[
        Fitness,
        typer.Option(
            "--fitness",
            help="Also measure hosts, and compare them with each other; without a value `quick`.",
            metavar="[=quick|full]",
            show_default=False,
        ),
    ] = Fitness.off,
    overrides: Set = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Check whether hosts are fit for the job.

    Every host side by side; what is wrong is told with its remedy. Works without a job too. Exit code 3: something is.
    With `--fitness`, also how fast hosts are, side by side with the others.

    Example: jobctl check job.yaml --hosts hosts.txt
    """
    from jobctl.jobspec.operations.inspect.check import check_hosts
    from jobctl.jobspec.operations.resolve.job import Reached, Where
    from jobctl.views.findings import show_findings
    from jobctl.views.fitness import show_fitness

    where = Where(target_name(target), hosts, joined(on), joined(exclude), context, namespace)
    reached = Reached(None, ssh_config, accept_new, context, namespace)
    found = check_hosts(job, overrides, where, reached, deep=deep, fitness=fitness.value)
    if output is Format.json:
        console.out_json({"ok": not found.unfit, "findings": [_json(finding) for finding in found.findings]})
    else:
        if fitness is not Fitness.off:
            show_fitness(found.findings)
        show_findings([f for f in found.findings if f.verdict != "ok"])
        _summary(found)
    if found.unfit:
        raise Failed("", 3)


def _summary(found: CheckResult) -> None:
    hosts, bad = counted(len(found.hosts), "cluster" if found.cluster else "host"), len(found.unfit)
    checks = f"{counted(len(found.findings), 'verdict')} on {hosts}"
    warnings = sum(1 for finding in found.findings if finding.verdict == "warning")
    told = f", {counted(warnings, 'warning')}" if warnings else ""
    left_out = len(found.unmeasured)
    parts = [f"{left_out} not measured"] if left_out else []
    if bad or left_out < len(found.hosts):
        parts += [f"{bad} not fit" if bad else "all others fit" if left_out else "all fit"]
    console.say(f"{checks}{told}: {', '.join(parts)}")


def _json(finding: Finding) -> dict[str, str | float | None]:
    return {
        "host": finding.host,
        "check": finding.check,
        "verdict": finding.verdict,
        "code": finding.code,
        "message": finding.message,
        "hint": finding.hint,
        "value": finding.value,
        "median": finding.median,
        "unit": finding.unit,
    }
