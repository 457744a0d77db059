"""A command in a container like that of a node, for `run`, beside the job and apart from it.

Code, outputs and secrets of the command are in a folder of its own below the job's work directory: what runs there has
other ones, and may begin, change or end meanwhile. So no lock is needed, and any number of commands may run. The folder
is removed afterwards; `down` removes what one that was killed has left.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from secrets import token_hex

from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.sending.code_spread import spread_code
from jobctl.jobspec.deploy.sending.send_code import Package
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet
from jobctl.jobspec.deploy.targets.provision import transfer_of
from jobctl.jobspec.deploy.transport.ending import ended_by_signals
from jobctl.jobspec.plan.known_environ import node_environ, with_variables
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.render.shell import Look, look_script

_CODE = "../../code"  # of the job, from that of a command


def terminal_flags() -> tuple[str, ...]:
    """Return how `docker` passes this process's terminal (or pipes) on."""
    return ("-i", "-t") if sys.stdin.isatty() and sys.stdout.isatty() else ("-i",)


def run_oneoff(fleet: HostFleet, plan: Plan, node: Node, start: RuntimeInputs, argv: Sequence[str]) -> int:
    """Run `argv` on a node's host in a container like the node's, with the terminal; return its exit code.

    What the host lacks comes as at `up`: from another host of the job, if one has it. Data and image stay there, as after
    every other command.
    """
    host_job, identity = fleet.host_jobs[node.host.name], token_hex(4)
    place, name = _place(host_job, identity), f"jobctl-{plan.job}-run-{identity}"
    with ended_by_signals(), ExitStack() as afterwards:
        afterwards.callback(place.erase, [(node.container.image, node.container.python)])
        _send(fleet, plan, host_job, place)
        # Last, and the command empties the file as it begins: nobody may be left to do so.
        place.send_secrets({name: start.secrets[name] for name in node.launch.secrets})
        place.give(node.container)
        afterwards.callback(place.containers.remove_one, name)  # it runs on where jobctl is interrupted
        look = Look(place=place.work.name, flags=terminal_flags())
        command = _with_secrets(node, argv)
        there = with_variables(node, node_environ(plan, node))
        script = look_script(plan, there, name, str(host_job.work), command, look)
        return place.starter.interact_script(script)


def _place(host_job: HostJob, identity: str) -> HostJob:
    """Return the folder of a command as if it were the place of a job."""
    place = copy(host_job)
    folder = f".run-{identity}"
    place.use_directories(str(host_job.work / folder), str(host_job.own / folder))
    place.containers = Containers(host_job.engine, host_job.job, f"root-{identity}")
    return place


def _send(fleet: HostFleet, plan: Plan, host_job: HostJob, place: HostJob) -> None:
    """Bring a host the data and the image of the job, and code to the `place` of a command."""
    host, transfer = host_job.host.name, transfer_of(fleet, plan)
    place.send([], ["code", *(f"outputs/{path}" for path in (plan.code.outputs if plan.code else ()))])
    shared = replace(transfer, code=None)
    gone = shared.spread(fleet, [host], [])
    if gone:
        raise gone[host]
    shared.to_node(host_job)
    if transfer.code is not None:
        _send_code(fleet, replace(transfer.code, beside=_CODE), place)


def _send_code(fleet: HostFleet, package: Package, place: HostJob) -> None:
    others = [job for name, job in fleet.host_jobs.items() if name not in fleet.down]
    package.send(place, spread_code(package, [place], others).get(place.host.name))


def _with_secrets(node: Node, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the argv that runs `argv` with the values of secrets, which are in a file that is empty from then on."""
    if not node.launch.secrets:
        return tuple(argv)
    load = (
        "import json, os, sys; file = open('/jobctl/secrets/secrets.json', 'r+'); os.environ.update(json.load(file));"
        " file.truncate(0); file.close(); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return (node.container.python, "-c", load, *argv)
