"""Spec and hosts to Plan: every decision about a job that can be made before it runs.

Pure and deterministic. The placement (node to host) is an argument: the order of the hosts file for a new job,
otherwise what was observed, so that a node that moved to a spare is not moved back.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from jobctl.jobspec.frameworks.base import TRAINERS_ONLY, framework
from jobctl.jobspec.plan import types
from jobctl.jobspec.plan.recovery import Recovery, Rule
from jobctl.jobspec.planner.checks import check_folder, check_nodes
from jobctl.jobspec.planner.code import build_of, code_of, data_of, script_of
from jobctl.jobspec.planner.context import Context, Placement, PlanError, Request
from jobctl.jobspec.planner.etcd import etcd_members, etcd_of
from jobctl.jobspec.planner.kubernetes import cluster_of, tasks_in_pods
from jobctl.jobspec.planner.nodes import NodeBuilder
from jobctl.jobspec.planner.placement import Task, tasks_on_hosts, tasks_on_this_machine
from jobctl.jobspec.planner.slurm import slurm_of, tasks_in_allocation
from jobctl.jobspec.planner.spares import spares_of

if TYPE_CHECKING:
    from jobctl.jobspec.spec.hosts import Host
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.targets import TargetName

TASKS: dict[TargetName, Callable[[Request], list[Task]]] = {
    "local": tasks_on_this_machine,
    "compose": tasks_on_hosts,
    "ssh": tasks_on_hosts,
    "kubernetes": tasks_in_pods,
    "slurm": tasks_in_allocation,
}


def plan(
    spec: Spec,
    hosts: Sequence[Host],
    context: Context,
    placement: Placement | None = None,
    devices: Mapping[str, int] | None = None,
    count: int | None = None,
) -> types.Plan:
    """Return the plan of `spec` on `hosts` (none for target `local`).

    `placement` says where nodes and services are already. `devices` is how many devices of the spec's kind were counted
    on hosts, by their names (target `local`: on `localhost`); None if nobody has counted. `count` is how many nodes of its
    range an elastic job gets; default as many as there is room for. Raises PlanError.
    """
    check_folder(context.directory)
    known = framework(spec.framework)
    most = spec.nodes.max if count is None else _counted(spec, count)
    placed = placement or Placement()
    return _planned(Request(spec, hosts, context, placed, devices or {}, most, known, known.roles(spec)))


def _planned(request: Request) -> types.Plan:
    spec, context = request.spec, request.context
    tasks = TASKS[context.target](request)
    cluster = cluster_of(spec) if context.traits.in_cluster else None
    members = etcd_members(request)
    build = NodeBuilder(request, etcd_of(spec, context, members, cluster), cluster, [one.host for one in members])
    nodes = tuple(build.node(index, task) for index, task in enumerate(tasks))
    check_nodes(spec, nodes, build.starts, context.traits.is_here)
    alike = request.roles == TRAINERS_ONLY
    digest = sha256(spec.model_dump_json(exclude=_unsaid(spec)).encode()).hexdigest()
    return types.Plan(
        job=spec.name,
        framework=spec.framework,
        mode=spec.mode,
        target=context.target,
        owner=context.owner,
        run_id=_run_id(spec, context, digest),
        min_nodes=spec.nodes.min if alike else len(nodes),
        max_nodes=spec.nodes.max if alike else len(nodes),
        elastic=spec.nodes.elastic,
        nodes=nodes,
        code=code_of(spec, context.directory) if spec.code else None,
        data=data_of(spec, context.directory),
        build=build_of(spec, context.directory, context.image) if context.image else None,
        script=script_of(spec, context),
        outputs=spec.outputs,
        checkpoint=_checkpoint(spec),
        rendezvous=types.Rendezvous(spec.rendezvous.port, spec.rendezvous.timeout),
        recovery=_recovery(spec, any(host.spare for host in request.hosts) and _may_move(spec)),
        stop_grace=spec.stop_grace_period,
        spec_hash=digest,
        services=members,
        cluster=cluster,
        slurm=slurm_of(spec, context) if context.traits.in_allocation else None,
        fitness=spec.fitness if context.traits.takes_hosts else "off",
        needs=request.framework.image_requirements(spec),
        counted=() if context.traits.is_here else tuple(sorted(request.devices.items())),
        spares=spares_of(request, build, nodes),
    )


def _unsaid(spec: Spec) -> dict[str, Any]:
    """Return the keys that do not make a job another run: who gets notifications, and newer keys that it does not use."""
    unused = {"notify": True, "slurm": spec.slurm is None, "fitness": spec.fitness == "off"}
    events = any(rule.event for rule in spec.recovery.rules)
    rules = {} if events else {"recovery": {"rules": {"__all__": {"event": True}}}}
    return {**{key: True for key, left_out in unused.items() if left_out}, **rules}


def _run_id(spec: Spec, context: Context, digest: str) -> str:
    # Ports come of it: the same example, run by two people on one machine, is two runs. A cluster has one, whoever applies it.
    whose = f"{context.owner}\n{context.directory}\n" if not context.traits.in_cluster else ""
    return f"{spec.name}-{sha256(f'{whose}{digest}'.encode()).hexdigest()[:8]}"


def _counted(spec: Spec, count: int) -> int:
    """Return `count` if the spec lets the job have so many nodes."""
    least, most = spec.nodes.min, spec.nodes.max
    if least <= count <= most:
        return count
    if least == most:
        message, hint = (
            f"the job has a fixed number of nodes, {most}",
            f'`nodes: "{min(count, most)}:{max(count, most)}"` makes it elastic',
        )
    else:
        message, hint = (
            f"the job has {least} to {most} nodes, not {count}",
            "`nodes` in the spec says how many it may have",
        )
    raise PlanError("nodes-out-of-range", message, ("nodes",), hint)


def _checkpoint(spec: Spec) -> types.Checkpoint | None:
    if spec.checkpoint is None:
        return None
    where = os.path.join(spec.checkpoint.dir, spec.name) if spec.checkpoint.per_job else spec.checkpoint.dir
    return types.Checkpoint(where, spec.checkpoint.shared, spec.checkpoint.keep)


def _may_move(spec: Spec) -> bool:
    """Say whether a node finds its checkpoints on any host."""
    return spec.checkpoint is None or spec.checkpoint.shared


def _recovery(spec: Spec, spares: bool) -> Recovery:
    given = spec.recovery
    default: Literal["replace", "shrink", "wait"] = "replace" if spares else "shrink" if spec.nodes.elastic else "wait"
    return Recovery(
        max_restarts=given.max_restarts,
        window=given.window,
        on_host_loss=given.on_host_loss or default,
        host_timeout=given.host_timeout,
        wait_timeout=given.wait_timeout,
        max_duration=given.max_duration,
        rules=tuple(Rule(rule.log, rule.exit, rule.do) for rule in given.rules if rule.event is None),
        exclude_stragglers=any(rule.event == "straggler" for rule in given.rules),
    )
