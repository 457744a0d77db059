"""Looking into a job: a command with a node's environment, and what the job leaves behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.console import Failed
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobs import Compiled
    from jobctl.jobspec.deploy.local import Local


def exec_in_node(deployer: Local, node: str | None, argv: list[str]) -> int:
    """Run `argv` with the environment of a node's first process and return its exit code."""
    from jobctl.jobspec.deploy.foreground import run_in_foreground
    from jobctl.jobspec.deploy.processes import environment, working_directory

    index = _index(node)
    observed = deployer.observe().node(index)
    if observed is None:
        raise Failed(
            f"job `{deployer.job.name}` has no node {index}",
            2,
            f"`jobctl status {deployer.job.name}` shows its nodes",
        )
    running = [process.pid for process in observed.processes if process.state == "running" and process.pid]
    if not running:
        raise Failed(
            f"node {index} is {observed.state}: it has no running process",
            2,
            "`jobctl run` needs no running job",
        )
    return run_in_foreground(argv, environment(running[0]), working_directory(running[0]))


def run_like_node(compiled: Compiled, node: str | None, argv: list[str]) -> int:
    """Run `argv` with what the job's processes would have, and return its exit code."""
    from jobctl.bringup import _secrets
    from jobctl.jobs import plan_of
    from jobctl.jobspec.deploy.foreground import run_in_foreground
    from jobctl.jobspec.deploy.local import process_environ

    plan = plan_of(compiled)
    index = _index(node)
    if index >= len(plan.nodes):
        raise Failed(f"the job has no node {index}", 2, f"its nodes are 0 to {len(plan.nodes) - 1}")
    environ = process_environ(plan, index, console.environ(), _secrets(compiled))
    return run_in_foreground(argv, environ, plan.nodes[index].launch.workdir)


def _index(node: str | None) -> int:
    if node is not None and not node.isdigit():
        raise Failed(f"the job has no node `{node}`", 2, "nodes are numbered from 0")
    return int(node or 0)


def pull_job(deployer: Local, directory: Path | None, output: Format) -> None:
    """Copy logs and outputs of the job into `directory`."""
    target = directory or Path(f"{deployer.job.name}-pull")
    copied = _pull_logs(deployer, target) + _pull_outputs(deployer, target)
    if not copied:
        raise Failed(f"job `{deployer.job.name}` has left nothing to fetch", 2)
    console.say(f"fetched {', '.join(copied)} into {target}")
    if output is Format.json:
        console.out_json({"job": deployer.job.name, "directory": str(target), "fetched": copied})


def _pull_logs(deployer: Local, target: Path) -> list[str]:
    roots = [deployer.work] if deployer.work.exists() else sorted(deployer.job.history.glob("*"))[-1:]
    found = [path for root in roots for path in sorted(root.glob("node-*/logs"))]
    for path in found:
        shutil.copytree(path, target / "localhost" / path.parent.name / "logs", dirs_exist_ok=True)
    return [f"logs of {len(found)} node{'' if len(found) == 1 else 's'}"] if found else []


def _pull_outputs(deployer: Local, target: Path) -> list[str]:
    plan = deployer.plan
    if plan is None or not plan.nodes[0].launch.workdir:
        return []
    workdir = Path(plan.nodes[0].launch.workdir)
    found = [output for output in plan.outputs if (workdir / output).exists()]
    for output in found:
        source, to = workdir / output, target / "localhost" / "outputs" / output
        if source.is_dir():
            shutil.copytree(source, to, dirs_exist_ok=True)
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to)
    return found
