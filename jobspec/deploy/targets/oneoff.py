"""A command in a container like that of a node, for `run`; what it needed is removed afterwards."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet
from jobctl.jobspec.deploy.targets.provision import transfer_of
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.render.shell import Look, look_script


def terminal_flags() -> tuple[str, ...]:
    """Return how `docker` passes this process's terminal (or pipes) on."""
    return ("-i", "-t") if sys.stdin.isatty() and sys.stdout.isatty() else ("-i",)


def look_around(fleet: HostFleet, plan: Plan, node: Node, start: RuntimeInputs, argv: Sequence[str]) -> int:
    """Run `argv` on a node's host in a container like the node's, with the terminal; return its exit code.

    What the host lacks comes as at `up`: from another host of the job, if one has it. Data stays there, as after every other
    command.
    """
    host_job = fleet.host_jobs[node.host.name]
    was_there = host_job.observe().there
    outputs = [f"outputs/{path}" for path in (plan.code.outputs if plan.code else ())]
    try:
        host_job.send([], outputs, secrets=bool(node.launch.secrets))
        host_job.send_secrets({name: start.secrets[name] for name in node.launch.secrets})
        transfer = transfer_of(fleet, plan)
        gone = transfer.spread(fleet, [node.host.name], [])
        if gone:
            raise gone[node.host.name]
        transfer.to_node(host_job)
        host_job.give(node.container)
        look = Look(code=True, secrets=True, flags=terminal_flags())
        name = f"jobctl-{plan.job}-run-{os.getpid()}"
        return host_job.starter.interact_script(
            look_script(plan, node, name, str(host_job.work), _with_secrets(node, argv), look)
        )
    finally:
        if not was_there:
            host_job.erase([container.image for container in host_job.containers.seen()])


def _with_secrets(node: Node, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the argv that runs `argv` with the values of secrets, which are in a file."""
    if not node.launch.secrets:
        return tuple(argv)
    load = (
        "import json, os, sys; os.environ.update(json.load(open('/jobctl/secrets/secrets.json')));"
        " os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return (node.container.python, "-c", load, *argv)
