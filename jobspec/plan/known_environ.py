"""The variables of a process that no generation changes: what a command of `run` has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobctl.jobspec.plan.types import Node, Plan


def known_environ(plan: Plan, node: Node) -> dict[str, str]:
    """Return those that jobctl sets in each process of `node`'s role, less what only a generation knows."""
    static = {name: value for name, value in node.launch.env if isinstance(value, str)}
    checkpoint = {"JOBCTL_CHECKPOINT_DIR": plan.checkpoint.dir} if plan.checkpoint else {}
    return {**static, **checkpoint, "JOBCTL_JOB": plan.job}


def node_environ(plan: Plan, node: Node) -> dict[str, str]:
    """Return these and the number of the node."""
    return {**known_environ(plan, node), "JOBCTL_NODE": str(node.index)}


def with_variables(node: Node, variables: Mapping[str, str]) -> Node:
    """Return `node` with a container that has more variables, for a command in place of the launcher."""
    env = {**dict(node.container.env), **variables}
    return replace(node, container=replace(node.container, env=tuple(env.items())))
