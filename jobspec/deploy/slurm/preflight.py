"""Whether a login node, and Slurm behind it, take a job: nothing is submitted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.partitions import chosen_partition, partition_findings
from jobctl.jobspec.deploy.slurm.problems import slurm_error
from jobctl.jobspec.deploy.slurm.variables import before_the_script, in_the_script, of_another_job, variable_of
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.slurm import BATCH, slurm_files

NOW_NOT = b"Requested node configuration is not available"
_COMMANDS = ("sbatch", "squeue", "scontrol", "scancel")


def preflight(login: LoginNode, plan: Plan | None) -> list[Finding]:
    """Return what is fine and what is not: the connection, Slurm's commands, the directory, the batch script."""
    found = []
    try:
        for finding in _checks(login, plan):
            found.append(finding)
            if finding.verdict == "error":
                break
    except HostError as error:
        found.append(Finding(login.name, "connection", "error", error.cause, error.code, error.hint))
    return found


def _checks(login: LoginNode, plan: Plan | None) -> Iterator[Finding]:
    yield _commands(login)
    partitions = login.command("scontrol", "--oneliner", "show", "partition")
    yield _controller(login, partitions)
    if plan is not None:
        yield _directory(login)
        found = list(_partition(login, plan, partitions))
        yield from sorted(found, key=lambda finding: finding.verdict != "error")
        yield _batch(login, plan, waits=any(finding.code == "slurm-nodes" for finding in found))


def _commands(login: LoginNode) -> Finding:
    script = 'for name do command -v "$name" >/dev/null || echo "$name"; done'
    said = login.transport.run(["sh", "-c", script, "sh", *_COMMANDS]).out.decode("utf-8", "replace").split()
    if not said:
        return Finding(login.name, "slurm", "ok", "Slurm's commands are there")
    hint = "is this a login node? `slurm: {login: HOST}` names one; or add Slurm's `bin` to PATH"
    return Finding(login.name, "slurm", "error", f"there is no {', '.join(said)}", "slurm-missing", hint)


def _controller(login: LoginNode, result: Result) -> Finding:
    if result.code != 0:
        error = slurm_error(login.name, "ask Slurm", result)
        return Finding(login.name, "slurm-controller", "error", error.cause, error.code, error.hint)
    return Finding(login.name, "slurm-controller", "ok", "Slurm's controller answers")


def _directory(login: LoginNode) -> Finding:
    top = login.work.rpartition("/.jobctl/")[0]
    if login.transport.run(["test", "-w", top]).code == 0:
        return Finding(login.name, "directory", "ok", f"{top} can be written")
    message, hint = f"{top} is not there, or cannot be written", "make it, or name another in `slurm.directory`"
    return Finding(login.name, "directory", "error", message, "slurm-directory", hint)


def _partition(login: LoginNode, plan: Plan, shown: Result) -> Iterator[Finding]:
    """Yield what the job's partition cannot give it, nothing where Slurm does not say. `shown` are all partitions."""
    wanted = _asked_for(login, plan, "--partition", "-p")
    partition = chosen_partition(shown.out.decode("utf-8", "replace"), wanted)
    if partition is not None:
        argv = ("sinfo", "--noheader", "--Node", f"--partition={partition.name}", "--format=%N|%T|%E")
        nodes = login.command(*argv)
        said = nodes.out.decode("utf-8", "replace") if nodes.code == 0 else ""
        qos = _asked_for(login, plan, "--qos", "-q")
        yield from partition_findings(login.name, plan, partition, said, qos)


def _asked_for(login: LoginNode, plan: Plan, option: str, short: str) -> str | None:
    """Return what `sbatch` will take for an option: what the batch script says, otherwise the user's variable there."""
    given = in_the_script(plan, option, short)
    if given is None:
        given = login.transport.run(["printenv", variable_of(option)]).out.decode("utf-8", "replace").strip()
    return given or None


def _batch(login: LoginNode, plan: Plan, *, waits: bool) -> Finding:
    """Have Slurm look at the batch script. `waits`: it is known that there are too few nodes just now."""
    files = slurm_files(plan, first_generation(plan))
    batch = next(file.content for file in files if file.path == BATCH)
    # The directory that it names is made when the job is sent.
    text = re.sub(rb"(?m)^#SBATCH --chdir=.*\n", b"", batch)
    result = login.try_out(text, of_another_job(os.environ) | before_the_script(plan))
    if result.code != 0 and waits and NOW_NOT in result.err:  # submitted, it waits for nodes
        return Finding(login.name, "slurm-submit", "ok", "Slurm takes the job")
    if result.code != 0:
        error = slurm_error(login.name, "submit the job", result)
        return Finding(login.name, "slurm-submit", "error", error.cause, error.code, error.hint)
    said = result.err.decode("utf-8", "replace").strip().removeprefix("sbatch: ")
    return Finding(login.name, "slurm-submit", "ok", said.splitlines()[-1] if said else "Slurm takes the job")
